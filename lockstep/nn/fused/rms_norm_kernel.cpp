#include "lockstep/nn/fused/rms_norm_kernel.h"

#include "lockstep/simd/vectors.h"

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;

inline float factor_of(const float* inputs, const RmsNormJob& job) {
  Floats squares = {};
  each_vector(job.width, [&](std::int64_t place, std::int64_t room) {
    const Floats x = load(inputs + place, room);
    squares += x * x;
  });
  const float mean = simd::sum(squares) / static_cast<float>(job.width);
  return 1 / __builtin_sqrtf(mean + job.epsilon);
}

inline void rms_norm_forward(const RmsNormJob& job, Range rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* const inputs = job.inputs + row * job.width;
    float* const outputs = job.outputs + row * job.width;
    const float factor = job.factors[row] = factor_of(inputs, job);
    each_vector(job.width, [&](std::int64_t place, std::int64_t room) {
      store(outputs + place, load(inputs + place, room) * factor * load(job.weight + place, room),
          room);
    });
  }
}

// With the gradients g, times the weight, of inputs x: f g - f^3 x mean(g x).
inline void rms_norm_input_gradients(const RmsNormGradientJob& job, Range rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* const inputs = job.inputs + row * job.width;
    const float* const gradients = job.gradients + row * job.width;
    float* const results = job.input_gradients + row * job.width;
    Floats products = {};
    each_vector(job.width, [&](std::int64_t place, std::int64_t room) {
      products += load(gradients + place, room) * load(job.weight + place, room) *
                  load(inputs + place, room);
    });
    const float factor = job.factors[row];
    const float share =
        factor * factor * factor * simd::sum(products) / static_cast<float>(job.width);
    each_vector(job.width, [&](std::int64_t place, std::int64_t room) {
      const Floats own = load(gradients + place, room) * load(job.weight + place, room) * factor;
      store(results + place, own - load(inputs + place, room) * share, room);
    });
  }
}

inline void rms_norm_weight_gradient(const RmsNormGradientJob& job, Range blocks) {
  constexpr int kVectors = kRmsNormColumns / kLanes;
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    const std::int64_t first = block * kRmsNormColumns;
    const auto each_column = [&](const auto& body) {
      for (int i = 0; i < kVectors && first + i * kLanes < job.width; ++i)
        body(i, first + i * kLanes, job.width - first - i * kLanes);
    };
    Floats sums[kVectors] = {};
    for (std::int64_t row = 0; row < job.rows; ++row) {
      const float* const inputs = job.inputs + row * job.width;
      const float* const gradients = job.gradients + row * job.width;
      each_column([&](int i, std::int64_t column, std::int64_t room) {
        sums[i] += load(inputs + column, room) * job.factors[row] * load(gradients + column, room);
      });
    }
    each_column([&](int i, std::int64_t column, std::int64_t room) {
      store(job.weight_gradient + column, sums[i], room);
    });
  }
}

}  // namespace

const RmsNormKernel& LOCKSTEP_BUILD(rms_norm)() {
  static constexpr RmsNormKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .forward = rms_norm_forward,
      .input_gradients = rms_norm_input_gradients,
      .weight_gradient = rms_norm_weight_gradient};
  return kKernel;
}

}  // namespace lockstep::nn::fused
