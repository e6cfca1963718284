#include "lockstep/nn/fused/cross_entropy_kernel.h"

#include "lockstep/simd/exponential.h"
#include "lockstep/simd/lanes.h"

// Note [Cross entropy in place]
//
// The loss of a row of scores x with label c is log(sum e^x) - x_c, and its gradient is the softmax
// of x, less 1 at c. The maximum is taken off all scores first: no power is too large for a float,
// and a small loss is no difference of two large numbers. A row is read three times, for its
// maximum, the sum, and the gradient that takes its place; a row of a large vocabulary stays in the
// second cache meanwhile. Powers are computed twice, which costs less than storing them, and
// bfloat16 is rounded once.

namespace lockstep::nn::fused {
namespace {

using simd::all;
using simd::BFloat16;
using simd::each_vector;
using simd::exponential;
using simd::Floats;
using simd::load;
using simd::store;

/// Of what scores are above the largest: their powers, and themselves.
struct RowSums {
  float powers, differences;
};

template <typename T>
inline RowSums sums_of(const T* scores, std::int64_t count, float most) {
  Floats powers = {}, differences = {};
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    const Floats difference = load(scores + place, room) - most;
    powers += simd::first_of(exponential(difference), room, Floats{});
    differences += simd::first_of(difference, room, Floats{});
  });
  return {simd::sum(powers), simd::sum(differences)};
}

template <typename T>
inline float replace_row(T* scores, std::int64_t label, const CrossEntropyJob& job) {
  const float most = simd::largest(scores, job.classes);
  const float chosen = simd::to_float(scores[label]) - most;
  const RowSums sums = sums_of(scores, job.classes, most);
  const float of_each = job.smoothing / static_cast<float>(job.classes);
  const float of_label = 1 - job.smoothing, part = 1 / sums.powers;
  each_vector(job.classes, [&](std::int64_t place, std::int64_t room) {
    const Floats found = load(scores + place, room);
    store(scores + place, exponential(found - most) * part - of_each, room);
  });
  store(scores + label, exponential(all(chosen)) * part - of_each - of_label, 1);
  const float of_all = of_each > 0 ? of_each * sums.differences : 0;  // may be infinite
  return __builtin_logf(sums.powers) - of_label * chosen - of_all;
}

template <typename T>
inline void replace_rows(const CrossEntropyJob& shared, Range rows) {
  const CrossEntropyJob job = shared;  // a copy: the scores could be it, for all that is known
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    T* const scores = static_cast<T*>(job.scores) + row * job.classes;
    if (job.labels[row] == job.ignored) {
      simd::fill_zero(scores, job.classes);
      job.losses[row] = 0;
    } else {
      job.losses[row] = replace_row(scores, job.labels[row], job);
    }
  }
}

inline void cross_entropy_replace(const CrossEntropyJob& job, Range rows) {
  job.element == Element::kFloat ? replace_rows<float>(job, rows)
                                 : replace_rows<BFloat16>(job, rows);
}

}  // namespace

const CrossEntropyKernel& LOCKSTEP_BUILD(cross_entropy)() {
  static constexpr CrossEntropyKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .replace = cross_entropy_replace};
  return kKernel;
}

}  // namespace lockstep::nn::fused
