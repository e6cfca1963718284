#include "lockstep/nn/fused/batch_norm_kernel.h"

#include "lockstep/nn/fused/activation_vectors.h"
#include "lockstep/simd/vectors.h"

// The loops of batch norm with an activation or without, compiled once for each instruction set.
//
// Note [Batch norm in four passes]
//
// These layers compute little and wait for memory, so what counts is how often they read and write
// their values. LibTorch's operators do so 14 times a training step (two readings for the
// statistics, reading and writing to normalise, the same for ReLU; three in ReLU's backward pass
// and five in batch norm's), these loops 8 times:
//
//     collect        reads x                  mean and variance
//     normalise      reads x, writes y        y = max(0, x * scale + shift)
//     reduce         reads x, dy              sums of dy and of dy * (x - mean), where y > 0
//     differentiate  reads x, dy, writes dx
//
// Whether y > 0 is computed again from x, which is there anyway. With a shortcut that is added
// before ReLU, y is read instead, and the gradient that passes is written for it. Of SiLU and
// hardswish the slope is computed again as well; without an activation all pass. An exponential
// costs more than memory: of SiLU in fp32, `reduce` writes the gradient that passes where dx will
// lie, and `differentiate` reads it there.
//
// What is left, in a bottleneck of ResNet50, counted in maps of its narrow width (a wide one has
// four times the channels), read or written:
//
//                 convolutions   norms, ReLU, shortcut   sum of the input's two gradients
//     forward          12                 22
//     backward         24                 38                          12
//
// Of these 108, 29 are there because the products beside a norm are steps of their own: 6 could go
// if 1x1 products gathered statistics, 15 if they formed the gradient that they read, 8 if one
// added to the shortcut's gradient. On a core of Zen 3 norms take a twelfth of a step, and these
// passes, timed alone, a fiftieth. So they are left.
//
// Rows are taken in blocks that stay in the cache: sums within a block are floats, those of blocks
// doubles, merged by Chan's formulas.

namespace lockstep::nn::fused {
namespace {

using simd::BFloat16;
using simd::each_vector;
using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;

inline std::int64_t padded(std::int64_t channels) {
  return (channels + kLanes - 1) / kLanes * kLanes;
}

inline std::int64_t batch_norm_scratch(std::int64_t channels) { return 3 * padded(channels); }

/// Calls body with the first row and the number of rows of each block.
template <typename Body>
inline void each_block(const PixelRows& rows, Range range, const Body& body) {
  constexpr std::int64_t kValues = 16384, kFewest = 8, kMost = 256;
  const std::int64_t fitting = kValues / rows.channels;
  const std::int64_t size = fitting < kFewest ? kFewest : fitting > kMost ? kMost : fitting;
  for (std::int64_t first = range.begin; first < range.end; first += size) {
    const std::int64_t left = range.end - first;
    body(first, left < size ? left : size);
  }
}

inline void clear(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = 0;
}

template <typename T>
inline void sum_block(const T* block, std::int64_t rows, std::int64_t channels, float* sums) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* const first = block + row * channels;
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      const auto at = [&](int i) { return load(first + i * channels + channel, room); };
      store(sums + channel, load(sums + channel) + ((at(0) + at(1)) + (at(2) + at(3))));
    });
  }
  for (; row < rows; ++row) {
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      store(sums + channel, load(sums + channel) + load(block + row * channels + channel, room));
    });
  }
}

// Sums deviations too: they tell what the float `mean` is off by.
template <typename T>
inline void sum_deviations(const T* block, std::int64_t rows, std::int64_t channels,
    const float* mean, float* deviations, float* squares) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const T* const first = block + row * channels;
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      const Floats middle = load(mean + channel);
      const auto off = [&](int i) { return load(first + i * channels + channel, room) - middle; };
      const Floats a = off(0), b = off(1), c = off(2), d = off(3);
      store(deviations + channel, load(deviations + channel) + ((a + b) + (c + d)));
      store(squares + channel, load(squares + channel) + ((a * a + b * b) + (c * c + d * d)));
    });
  }
  for (; row < rows; ++row) {
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      const Floats off = load(block + row * channels + channel, room) - load(mean + channel);
      store(deviations + channel, load(deviations + channel) + off);
      store(squares + channel, load(squares + channel) + off * off);
    });
  }
}

template <typename T>
inline void collect_of(const PixelRows& rows, const void* inputs, Range range,
    const Moments& moments, float* scratch) {
  const std::int64_t channels = rows.channels, wide = padded(channels);
  float *const mean = scratch, *const deviations = scratch + wide,
               *const squares = deviations + wide;
  double before = 0;
  for (std::int64_t channel = 0; channel < channels; ++channel)
    moments.mean[channel] = moments.squares[channel] = 0;
  each_block(rows, range, [&](std::int64_t first, std::int64_t count) {
    const T* const block = static_cast<const T*>(inputs) + first * channels;
    clear(scratch, 3 * wide);
    sum_block(block, count, channels, mean);
    const float share = 1.0F / static_cast<float>(count);
    for (std::int64_t channel = 0; channel < wide; ++channel) mean[channel] *= share;
    sum_deviations(block, count, channels, mean, deviations, squares);
    const double here = static_cast<double>(count), weight = here / (before + here);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const double off = deviations[channel] / here;
      const double delta = mean[channel] + off - moments.mean[channel];
      moments.mean[channel] += delta * weight;
      moments.squares[channel] +=
          squares[channel] - off * off * here + delta * delta * before * weight;
    }
    before += here;
  });
}

template <typename T, bool kHasAddends, Activation kActivation>
inline void normalise_of(const NormaliseJob& shared, Range range) {
  // A copy: the outputs could be the original, for all that the compiler knows. So below.
  const NormaliseJob job = shared;
  const std::int64_t channels = job.rows.channels;
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    const std::int64_t start = row * channels;
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      Floats value = load(static_cast<const T*>(job.inputs) + start + channel, room) *
                         load(job.scale + channel, room) +
                     load(job.shift + channel, room);
      if constexpr (kHasAddends)
        value += load(static_cast<const T*>(job.addends) + start + channel, room);
      store(static_cast<T*>(job.outputs) + start + channel, activated<kActivation>(value), room);
    });
  }
}

template <typename T, bool kHasAddends, Activation kActivation>
inline void reduce_row(const ReduceJob& job, std::int64_t row, float* gradients, float* products) {
  const std::int64_t channels = job.rows.channels, start = row * channels;
  each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
    const Floats input = load(static_cast<const T*>(job.inputs) + start + channel, room);
    const Floats gradient = load(static_cast<const T*>(job.gradients) + start + channel, room);
    Floats passed = gradient;
    if constexpr (kHasAddends) {
      passed = passed_back<kActivation>(
          load(static_cast<const T*>(job.outputs) + start + channel, room), gradient);
      store(static_cast<T*>(job.passed) + start + channel, passed, room);
    } else if constexpr (kActivation != Activation::kNone) {
      passed = passed_back<kActivation>(
          input * load(job.scale + channel, room) + load(job.shift + channel, room), gradient);
      if (job.passed != nullptr) store(static_cast<T*>(job.passed) + start + channel, passed, room);
    }
    store(gradients + channel, load(gradients + channel) + passed);
    store(products + channel,
        load(products + channel) + passed * (input - load(job.mean + channel, room)));
  });
}

template <typename T, bool kHasAddends, Activation kActivation>
inline void reduce_of(
    const ReduceJob& shared, Range range, const GradientSums& sums, float* scratch) {
  const ReduceJob job = shared;
  const std::int64_t channels = job.rows.channels, wide = padded(channels);
  float *const gradients = scratch, *const products = scratch + wide;
  for (std::int64_t channel = 0; channel < channels; ++channel)
    sums.gradients[channel] = sums.products[channel] = 0;
  each_block(job.rows, range, [&](std::int64_t first, std::int64_t count) {
    clear(scratch, 2 * wide);
    for (std::int64_t row = first; row < first + count; ++row)
      reduce_row<T, kHasAddends, kActivation>(job, row, gradients, products);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      sums.gradients[channel] += gradients[channel];
      sums.products[channel] += products[channel];
    }
  });
}

template <typename T, Activation kActivation>
inline void differentiate_of(const InputGradientJob& shared, Range range) {
  const InputGradientJob job = shared;
  const std::int64_t channels = job.rows.channels;
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    const std::int64_t start = row * channels;
    each_vector(channels, [&](std::int64_t channel, std::int64_t room) {
      const Floats input = load(static_cast<const T*>(job.inputs) + start + channel, room);
      Floats gradient = load(static_cast<const T*>(job.gradients) + start + channel, room);
      if constexpr (kActivation != Activation::kNone)
        gradient = passed_back<kActivation>(
            input * load(job.scale + channel, room) + load(job.shift + channel, room), gradient);
      store(static_cast<T*>(job.input_gradients) + start + channel,
          gradient * load(job.of_gradient + channel, room) +
              (input - load(job.mean + channel, room)) * load(job.of_input + channel, room) +
              load(job.constant + channel, room),
          room);
    });
  }
}

// Calls body with the type of the values and the activation, as types.
template <typename Body>
inline void for_kinds(Element element, Activation activation, const Body& body) {
  const auto for_type = [&](auto type) {
    with_activation(activation, [&](auto known) { body(type, known); });
  };
  element == Element::kFloat ? for_type(float{}) : for_type(BFloat16{});
}

// The steps of BatchNormKernel.
inline void collect(const PixelRows& rows, const void* inputs, Range range, const Moments& moments,
    float* scratch) {
  rows.element == Element::kFloat ? collect_of<float>(rows, inputs, range, moments, scratch)
                                  : collect_of<BFloat16>(rows, inputs, range, moments, scratch);
}

inline void normalise(const NormaliseJob& job, Range range) {
  for_kinds(job.rows.element, job.activation, [&](auto type, auto activation) {
    using T = decltype(type);
    if (job.addends != nullptr) return normalise_of<T, true, Activation::kRelu>(job, range);
    normalise_of<T, false, activation.kValue>(job, range);
  });
}

inline void reduce(const ReduceJob& job, Range range, const GradientSums& sums, float* scratch) {
  for_kinds(job.rows.element, job.activation, [&](auto type, auto activation) {
    using T = decltype(type);
    if (job.outputs != nullptr)
      return reduce_of<T, true, Activation::kRelu>(job, range, sums, scratch);
    reduce_of<T, false, activation.kValue>(job, range, sums, scratch);
  });
}

inline void differentiate(const InputGradientJob& job, Range range) {
  for_kinds(job.rows.element, job.activation, [&](auto type, auto activation) {
    differentiate_of<decltype(type), activation.kValue>(job, range);
  });
}

}  // namespace

const BatchNormKernel& LOCKSTEP_BUILD(batch_norm)() {
  static constexpr BatchNormKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .scratch_floats = batch_norm_scratch,
      .collect = collect,
      .normalise = normalise,
      .reduce = reduce,
      .differentiate = differentiate};
  return kKernel;
}

}  // namespace lockstep::nn::fused
