#include "lockstep/nn/conv/depthwise_kernel.h"

#include "lockstep/simd/vectors.h"

// The backward loops of depthwise convolutions, compiled once for each instruction set.
//
// Note [Depthwise convolutions]
//
// Such a layer multiplies little. oneDNN's forward pass is fast, but for AVX2 it has no kernel for
// the gradient of the weights beyond 3x3: it copies each window of pixels and multiplies by the
// general matrix product, channel by channel, 5 to 50 times slower than memory allows.
//
// Here a row of the output's gradient meets a row of pixels for one row of taps: a vector of
// channels of the gradient is loaded once, and each tap of the row has its sum in a register.

namespace lockstep::nn::conv {
namespace {

using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;

inline std::int64_t padded(std::int64_t channels) {
  return (channels + kLanes - 1) / kLanes * kLanes;
}

/// A row of the output's gradient, the pixels and the sums that it meets, from one channel on.
struct RowPair {
  const float* gradient;
  const float* pixels;
  float* sums;
  std::int64_t room;  ///< channels from there on
};

// kVectors vectors of channels, kTaps taps from first_tap on.
template <int kTaps, int kVectors>
inline void sum_taps(const DepthwiseShape& shape, const RowPair& row, std::int64_t first_tap) {
  const std::int64_t channels = shape.channels, wide = padded(channels);
  Floats sums[kTaps][kVectors] = {};
  for (std::int64_t out = 0; out < shape.out_width; ++out) {
    const std::int64_t first = out * shape.stride_width - shape.padding_width + first_tap;
    const bool is_inside = first >= 0 && first + kTaps <= shape.width;
    Floats gradient[kVectors];
    for (int v = 0; v < kVectors; ++v)
      gradient[v] = load(row.gradient + out * channels + v * kLanes, row.room - v * kLanes);
    for (int tap = 0; tap < kTaps; ++tap) {
      if (!is_inside && (first + tap < 0 || first + tap >= shape.width)) continue;
      for (int v = 0; v < kVectors; ++v)
        sums[tap][v] += gradient[v] * load(row.pixels + (first + tap) * channels + v * kLanes,
                                          row.room - v * kLanes);
    }
  }
  for (int tap = 0; tap < kTaps; ++tap) {
    for (int v = 0; v < kVectors; ++v) {
      float* const place = row.sums + (first_tap + tap) * wide + v * kLanes;
      store(place, load(place) + sums[tap][v]);
    }
  }
}

template <int kVectors>
inline void sum_row(const DepthwiseShape& shape, const RowPair& row) {
  switch (shape.kernel_width) {
    case 3:
      return sum_taps<3, kVectors>(shape, row, 0);
    case 5:
      return sum_taps<5, kVectors>(shape, row, 0);
    case 7:
      sum_taps<4, kVectors>(shape, row, 0);
      return sum_taps<3, kVectors>(shape, row, 4);
    default:
      for (std::int64_t tap = 0; tap < shape.kernel_width; ++tap)
        sum_taps<1, kVectors>(shape, row, tap);
  }
}

// The rows of taps that meet an image for an output row, one after the other.
template <typename Body>
inline void each_meeting(const DepthwiseShape& shape, std::int64_t out_row, const Body& body) {
  const std::int64_t first = out_row * shape.stride_height - shape.padding_height;
  for (std::int64_t tap = 0; tap < shape.kernel_height; ++tap) {
    if (first + tap >= 0 && first + tap < shape.height) body(tap, first + tap);
  }
}

inline void sum_weights(const DepthwiseWeightJob& shared, Range blocks) {
  const DepthwiseWeightJob job = shared;
  const DepthwiseShape& shape = job.shape;
  const std::int64_t channels = shape.channels, wide = padded(channels);
  const std::int64_t end = blocks.end * kLanes < channels ? blocks.end * kLanes : channels;
  for (std::int64_t row = 0; row < shape.images * shape.out_height; ++row) {
    const std::int64_t image = row / shape.out_height;
    each_meeting(shape, row % shape.out_height, [&](std::int64_t tap, std::int64_t pixels) {
      const float* const gradient = job.gradient + row * shape.out_width * channels;
      const float* const met =
          job.images + (image * shape.height + pixels) * shape.width * channels;
      float* const sums = job.sums + tap * shape.kernel_width * wide;
      std::int64_t channel = blocks.begin * kLanes;
      for (; channel + 2 * kLanes <= end; channel += 2 * kLanes)
        sum_row<2>(shape, {gradient + channel, met + channel, sums + channel, 2 * kLanes});
      for (; channel < end; channel += kLanes)
        sum_row<1>(shape, {gradient + channel, met + channel, sums + channel, end - channel});
    });
  }
}

/// The gradient of a pixel: the sum over the taps that met it.
template <int kVectors>
inline void differentiate_pixel(const DepthwiseImageJob& job, std::int64_t image, std::int64_t row,
    std::int64_t column, std::int64_t channel, std::int64_t room) {
  const DepthwiseShape& shape = job.shape;
  const std::int64_t channels = shape.channels, wide = padded(channels);
  Floats sums[kVectors] = {};
  const std::int64_t down = row + shape.padding_height, right = column + shape.padding_width;
  for (std::int64_t y = down % shape.stride_height; y < shape.kernel_height && y <= down;
       y += shape.stride_height) {
    const std::int64_t out_row = (down - y) / shape.stride_height;
    if (out_row >= shape.out_height) continue;
    const float* const gradient =
        job.gradient + (image * shape.out_height + out_row) * shape.out_width * channels + channel;
    const float* const weights = job.weights + y * shape.kernel_width * wide + channel;
    for (std::int64_t x = right % shape.stride_width; x < shape.kernel_width && x <= right;
         x += shape.stride_width) {
      const std::int64_t out = (right - x) / shape.stride_width;
      if (out >= shape.out_width) continue;
      for (int v = 0; v < kVectors; ++v)
        sums[v] += load(gradient + out * channels + v * kLanes, room - v * kLanes) *
                   load(weights + x * wide + v * kLanes);
    }
  }
  float* const result =
      job.images + ((image * shape.height + row) * shape.width + column) * channels + channel;
  for (int v = 0; v < kVectors; ++v) store(result + v * kLanes, sums[v], room - v * kLanes);
}

inline void differentiate(const DepthwiseImageJob& shared, Range rows) {
  const DepthwiseImageJob job = shared;
  const DepthwiseShape& shape = job.shape;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t image = row / shape.height, of_image = row % shape.height;
    for (std::int64_t column = 0; column < shape.width; ++column) {
      std::int64_t channel = 0;
      for (; channel + 4 * kLanes <= shape.channels; channel += 4 * kLanes)
        differentiate_pixel<4>(job, image, of_image, column, channel, 4 * kLanes);
      for (; channel < shape.channels; channel += kLanes)
        differentiate_pixel<1>(job, image, of_image, column, channel, shape.channels - channel);
    }
  }
}

}  // namespace

const DepthwiseKernel& LOCKSTEP_BUILD(depthwise)() {
  static constexpr DepthwiseKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .lanes = kLanes,
      .sum_weights = sum_weights,
      .differentiate = differentiate};
  return kKernel;
}

}  // namespace lockstep::nn::conv
