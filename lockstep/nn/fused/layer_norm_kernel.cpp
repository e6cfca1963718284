#include "lockstep/nn/fused/layer_norm_kernel.h"

#include "lockstep/nn/fused/rows_in_fours.h"
#include "lockstep/simd/lanes.h"

// Note [Layer norm in groups of rows]
//
// As many rows as a vector has lanes are one group, which stays in the first-level cache:
//
//     row 0   x x x x x x x x ...  -> sums of row 0, one a lane  \   transposed and added,
//     row 1   x x x x x x x x ...  -> sums of row 1              |   one vector has the
//     ...                                                        /   sums of all rows
//
// A short row would otherwise take as long for the sum of its lanes as for all else. Within a group
// four rows at a time go over the columns, so the parameters, and backward their gradients' sums,
// are read once for four. What the results of a row are depends on no other row.

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;

// Calls body with the first row of each group, and how many rows it has.
template <typename Body>
inline void each_group(Range rows, const Body& body) {
  for (std::int64_t first = rows.begin; first < rows.end; first += kLanes) {
    const std::int64_t left = rows.end - first;
    body(first, left < kLanes ? static_cast<int>(left) : kLanes);
  }
}

// Of each of kLanes vectors the sum of its lanes.
inline Floats sums_of_each(Floats* vectors) {
  simd::transpose(vectors);
  Floats sums = vectors[0];
  for (int lane = 1; lane < kLanes; ++lane) sums += vectors[lane];
  return sums;
}

inline Floats square_roots(Floats vector) {
  for (int lane = 0; lane < kLanes; ++lane) vector[lane] = __builtin_sqrtf(vector[lane]);
  return vector;
}

template <typename T>
inline Floats means_of(const T* inputs, int rows, std::int64_t width) {
  Floats sums[kLanes] = {};
  in_fours(rows, [&]<int kRows>(std::int64_t first) {
    Floats own[kRows] = {};
    const T* const from = inputs + first * width;
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) own[row] += load(from + row * width + place, room);
    });
    for (int row = 0; row < kRows; ++row) sums[first + row] = own[row];
  });
  return sums_of_each(sums) / static_cast<float>(width);
}

template <typename T>
inline Floats variances_of(const T* inputs, int rows, std::int64_t width, Floats means) {
  Floats sums[kLanes] = {};
  in_fours(rows, [&]<int kRows>(std::int64_t first) {
    Floats own[kRows] = {}, mean[kRows];
    for (int row = 0; row < kRows; ++row) mean[row] = simd::all(means[first + row]);
    const T* const from = inputs + first * width;
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const Floats off = load(from + row * width + place, room) - mean[row];
        const Floats counted = simd::first_of(off, room, Floats{});
        own[row] += counted * counted;
      }
    });
    for (int row = 0; row < kRows; ++row) sums[first + row] = own[row];
  });
  return sums_of_each(sums) / static_cast<float>(width);
}

/// The numbers of a group's rows.
struct GroupMoments {
  Floats means, factors;
};

template <typename T>
inline void normalise(const LayerNormJob& job, std::int64_t first, int count, GroupMoments group) {
  const std::int64_t width = job.width;
  const float *const weight = job.weight, *const bias = job.bias;
  in_fours(count, [&]<int kRows>(std::int64_t begin) {
    const T* const inputs = static_cast<const T*>(job.inputs) + (first + begin) * width;
    T* const outputs = static_cast<T*>(job.outputs) + (first + begin) * width;
    Floats means[kRows], factors[kRows];
    for (int row = 0; row < kRows; ++row) {
      means[row] = simd::all(group.means[begin + row]);
      factors[row] = simd::all(group.factors[begin + row]);
    }
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
      const Floats weights = load(weight + place, room);
      const Floats biases = bias == nullptr ? Floats{} : load(bias + place, room);
      Floats values[kRows];
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const Floats off = load(inputs + row * width + place, room) - means[row];
        values[row] = off * factors[row] * weights + biases;
      }
      store_rows(values, outputs + place, width, room);
    });
  });
}

template <typename T>
inline void forward_of(const LayerNormJob& job, Range rows) {
  each_group(rows, [&](std::int64_t first, int count) {
    const T* const inputs = static_cast<const T*>(job.inputs) + first * job.width;
    const Floats means = means_of(inputs, count, job.width);
    const Floats variances = variances_of(inputs, count, job.width, means);
    const Floats factors = 1.0F / square_roots(variances + job.epsilon);
    store(job.means + first, means, count);
    store(job.factors + first, factors, count);
    normalise<T>(job, first, count, {means, factors});
  });
}

/// Sums of a group's rows, of gradients g, times the weight, and of these times x - mean.
struct GroupSums {
  Floats gradients, products;
};

// Of the group, and of the parameters.
template <typename T>
inline GroupSums sums_of_group(
    const LayerNormGradientJob& job, std::int64_t first, int count, float* of_parameters) {
  const std::int64_t width = job.width;
  const float* const weight = job.weight;
  Floats sums[kLanes] = {}, products[kLanes] = {};
  in_fours(count, [&]<int kRows>(std::int64_t begin) {
    Floats sum[kRows] = {}, product[kRows] = {};
    const float* const means = job.means + first + begin;
    const float* const factors = job.factors + first + begin;
    const T* const inputs = static_cast<const T*>(job.inputs) + (first + begin) * width;
    const T* const gradients = static_cast<const T*>(job.gradients) + (first + begin) * width;
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
      const Floats weights = load(weight + place, room);
      Floats of_weight = {}, of_bias = {};
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const Floats gradient = load(gradients + row * width + place, room);
        const Floats off = load(inputs + row * width + place, room) - means[row];
        sum[row] += gradient * weights;
        product[row] += gradient * weights * off;
        of_weight += off * factors[row] * gradient;
        of_bias += gradient;
      }
      add_to(of_parameters + place, of_weight, room);
      add_to(of_parameters + width + place, of_bias, room);
    });
    for (int row = 0; row < kRows; ++row) {
      sums[begin + row] = sum[row];
      products[begin + row] = product[row];
    }
  });
  return {sums_of_each(sums), sums_of_each(products)};
}

// With normed inputs n: f (g - mean(g) - n mean(g n)).
template <typename T>
inline void input_gradients(
    const LayerNormGradientJob& job, std::int64_t first, int count, GroupSums sums) {
  const std::int64_t width = job.width;
  const float* const weight = job.weight;
  const Floats factors = load(job.factors + first, count);
  const Floats shifts = factors * sums.gradients / static_cast<float>(width);
  const Floats slopes = factors * factors * factors * sums.products / static_cast<float>(width);
  in_fours(count, [&]<int kRows>(std::int64_t begin) {
    const T* const inputs = static_cast<const T*>(job.inputs) + (first + begin) * width;
    const T* const gradients = static_cast<const T*>(job.gradients) + (first + begin) * width;
    T* const results = static_cast<T*>(job.input_gradients) + (first + begin) * width;
    float factor[kRows], mean[kRows], slope[kRows], shift[kRows];
    for (int row = 0; row < kRows; ++row) {
      factor[row] = factors[begin + row];
      mean[row] = job.means[first + begin + row];
      slope[row] = slopes[begin + row];
      shift[row] = shifts[begin + row];
    }
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
      const Floats weights = load(weight + place, room);
      Floats values[kRows];
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        const Floats gradient = load(gradients + row * width + place, room) * weights;
        const Floats off = load(inputs + row * width + place, room) - mean[row];
        values[row] = gradient * factor[row] - off * slope[row] - shift[row];
      }
      store_rows(values, results + place, width, room);
    });
  });
}

template <typename T>
inline void backward_of(const LayerNormGradientJob& job, Range rows, float* sums) {
  each_group(rows, [&](std::int64_t first, int count) {
    const GroupSums group = sums_of_group<T>(job, first, count, sums);
    if (job.input_gradients != nullptr) input_gradients<T>(job, first, count, group);
  });
}

inline void layer_norm_forward(const LayerNormJob& job, Range rows) {
  job.element == Element::kFloat ? forward_of<float>(job, rows)
                                 : forward_of<simd::BFloat16>(job, rows);
}

inline void layer_norm_backward(const LayerNormGradientJob& job, Range rows, float* sums) {
  job.element == Element::kFloat ? backward_of<float>(job, rows, sums)
                                 : backward_of<simd::BFloat16>(job, rows, sums);
}

}  // namespace

const LayerNormKernel& LOCKSTEP_BUILD(layer_norm)() {
  static constexpr LayerNormKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .forward = layer_norm_forward, .backward = layer_norm_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
