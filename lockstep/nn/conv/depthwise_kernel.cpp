#include "lockstep/nn/conv/depthwise_kernel.h"

#include "lockstep/simd/vectors.h"

// The loops of depthwise convolutions, compiled once for each instruction set.
//
// Note [Depthwise convolutions]
//
// Such a layer multiplies little. oneDNN's forward pass is fast, but for AVX2 it has no kernel for
// the gradient of the weights beyond 3x3: it copies each window of pixels and multiplies by the
// general matrix product, channel by channel, 5 to 50 times slower than memory allows.
//
// Small images and large kernels are slow there in the forward pass, too. Here a row of taps
// meets a row of pixels for kOutputs pixels of the output, each of which has its sum in a register:
//
//     pixels    p0  p1  p2  p3  p4  p5            kOutputs = 4, 3 taps, stride 1
//     outputs   o0 += p0 t0 + p1 t1 + p2 t2       p2 is loaded once, and meets t2 for o0,
//               o1 += p1 t0 + p2 t1 + p3 t2       t1 for o1 and t0 for o2
//
// For the weights a row of the output's gradient meets a row of pixels for one row of taps: a
// vector of channels of the gradient is loaded once, and each tap of the row has its sum in a
// register. Which taps are outside of the image is asked at the edges only: for large images that
// took half of the time.

namespace lockstep::nn::conv {
namespace {

using simd::Floats;
using simd::kLanes;
using simd::least;
using simd::load;
using simd::parts_of;
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

/// Outputs whose taps are all inside of a row of pixels.
inline Range outputs_inside(const WindowShape& shape, std::int64_t first_tap, std::int64_t taps) {
  const std::int64_t left = shape.padding_width - first_tap, stride = shape.stride_width;
  const std::int64_t last = shape.width - taps + left;
  const std::int64_t begin = left > 0 ? least(parts_of(left, stride), shape.out_width) : 0;
  const std::int64_t end = last < 0 ? 0 : least(last / stride + 1, shape.out_width);
  return {begin, end > begin ? end : begin};
}

/// The sums of kTaps taps in kVectors vectors of channels. kIsWhole says whether there are as many
/// channels, or else room tells.
template <int kTaps, int kVectors, bool kIsWhole>
class TapSums {
 public:
  TapSums(const WindowShape& shape, const RowPair& row, std::int64_t first_tap)
      : shape_(shape), row_(row), first_tap_(first_tap) {}

  void add(Range outputs) {
    const std::int64_t channels = shape_.channels;
    const float* gradient = row_.gradient + outputs.begin * channels;
    const float* pixels = row_.pixels + pixel_of(outputs.begin) * channels;
    for (std::int64_t out = outputs.begin; out < outputs.end; ++out) {
      Floats gradients[kVectors];
      for (int v = 0; v < kVectors; ++v) gradients[v] = vector(gradient, v);
#pragma GCC unroll 8
      for (int tap = 0; tap < kTaps; ++tap)
        for (int v = 0; v < kVectors; ++v)
          sums_[tap][v] += gradients[v] * vector(pixels + tap * channels, v);
      gradient += channels;
      pixels += shape_.stride_width * channels;
    }
  }

  // Outside there are zeros.
  void add_at_edge(Range outputs) {
    const std::int64_t channels = shape_.channels;
    for (std::int64_t out = outputs.begin; out < outputs.end; ++out) {
      const std::int64_t first = pixel_of(out);
      Floats gradients[kVectors];
      for (int v = 0; v < kVectors; ++v) gradients[v] = vector(row_.gradient + out * channels, v);
#pragma GCC unroll 8
      for (int tap = 0; tap < kTaps; ++tap) {
        if (first + tap < 0 || first + tap >= shape_.width) continue;
        for (int v = 0; v < kVectors; ++v)
          sums_[tap][v] += gradients[v] * vector(row_.pixels + (first + tap) * channels, v);
      }
    }
  }

  void store_sums() const {
#pragma GCC unroll 8
    for (int tap = 0; tap < kTaps; ++tap) {
      for (int v = 0; v < kVectors; ++v) {
        float* const place = row_.sums + (first_tap_ + tap) * padded(shape_.channels) + v * kLanes;
        store(place, load(place) + sums_[tap][v]);
      }
    }
  }

 private:
  std::int64_t pixel_of(std::int64_t output) const {
    return output * shape_.stride_width - shape_.padding_width + first_tap_;
  }

  Floats vector(const float* channels, int v) const {
    return kIsWhole ? load(channels + v * kLanes)
                    : load(channels + v * kLanes, row_.room - v * kLanes);
  }

  const WindowShape& shape_;
  const RowPair& row_;
  std::int64_t first_tap_;
  Floats sums_[kTaps][kVectors] = {};
};

// Taps from first_tap on.
template <int kTaps, int kVectors, bool kIsWhole>
inline void sum_taps(const WindowShape& shape, const RowPair& row, std::int64_t first_tap) {
  const Range inside = outputs_inside(shape, first_tap, kTaps);
  TapSums<kTaps, kVectors, kIsWhole> sums(shape, row, first_tap);
  sums.add_at_edge({0, inside.begin});
  sums.add(inside);
  sums.add_at_edge({inside.end, shape.out_width});
  sums.store_sums();
}

template <int kVectors, bool kIsWhole>
inline void sum_row(const WindowShape& shape, const RowPair& row) {
  switch (shape.kernel_width) {
    case 3:
      return sum_taps<3, kVectors, kIsWhole>(shape, row, 0);
    case 5:
      return sum_taps<5, kVectors, kIsWhole>(shape, row, 0);
    case 7:
      sum_taps<4, kVectors, kIsWhole>(shape, row, 0);
      return sum_taps<3, kVectors, kIsWhole>(shape, row, 4);
    default:
      for (std::int64_t tap = 0; tap < shape.kernel_width; ++tap)
        sum_taps<1, kVectors, kIsWhole>(shape, row, tap);
  }
}

// The rows of taps that meet an image for an output row, one after the other.
template <typename Body>
inline void each_meeting(const WindowShape& shape, std::int64_t out_row, const Body& body) {
  const std::int64_t first = out_row * shape.stride_height - shape.padding_height;
  for (std::int64_t tap = 0; tap < shape.kernel_height; ++tap) {
    if (first + tap >= 0 && first + tap < shape.height) body(tap, first + tap);
  }
}

/// Outputs in a row, from one channel on.
struct OutputPlace {
  std::int64_t image, row, column, channel;
  std::int64_t room;  ///< channels from there on
};

// A row of taps, for outputs that begin at pixel `left` of a row; outside there are zeros.
template <int kTaps, int kStride, int kOutputs, int kVectors>
[[gnu::always_inline]] inline void add_taps(const WindowShape& shape, const float* pixels,
    const float* weights, std::int64_t left, std::int64_t room,
    Floats (&sums)[kOutputs][kVectors]) {
  const std::int64_t channels = shape.channels, wide = padded(channels);
#pragma GCC unroll 16
  for (int i = 0; i < (kOutputs - 1) * kStride + kTaps; ++i) {
    if (left + i < 0 || left + i >= shape.width) continue;
    Floats pixel[kVectors];
    for (int v = 0; v < kVectors; ++v)
      pixel[v] = load(pixels + (left + i) * channels + v * kLanes, room - v * kLanes);
#pragma GCC unroll 8
    for (int tap = 0; tap < kTaps; ++tap) {
      const int output = (i - tap) / kStride;
      if (i < tap || (i - tap) % kStride != 0 || output >= kOutputs) continue;
      for (int v = 0; v < kVectors; ++v)
        sums[output][v] += pixel[v] * load(weights + tap * wide + v * kLanes);
    }
  }
}

// Fetches the pixels that the next outputs of a row are the first to meet, in the last rows of
// taps: a processor does not fetch a part of the channels of each pixel by itself.
template <int kTaps, int kStride, int kOutputs>
inline void fetch_ahead(const DepthwiseJob& job, const OutputPlace& place) {
  const WindowShape& shape = job.shape;
  const std::int64_t last =
      place.row * shape.stride_height - shape.padding_height + shape.kernel_height - 1;
  const std::int64_t next = (place.column + kOutputs - 1) * kStride - shape.padding_width + kTaps;
  const float* const pixels =
      job.images + ((place.image * shape.height + last) * shape.width + next) * shape.channels +
      place.channel;
#pragma GCC unroll 2
  for (int up = 0; up < kStride; ++up) {
#pragma GCC unroll 8
    for (int i = 0; i < kOutputs * kStride; ++i)
      __builtin_prefetch(pixels + (i - up * shape.width) * shape.channels);
  }
}

template <int kTaps, int kStride, int kOutputs, int kVectors>
inline void convolve_outputs(const DepthwiseJob& job, const OutputPlace& place) {
  const WindowShape& shape = job.shape;
  const std::int64_t channels = shape.channels;
  // Larger kernels compute for longer than they wait.
  if constexpr (kTaps == 3) fetch_ahead<kTaps, kStride, kOutputs>(job, place);
  Floats sums[kOutputs][kVectors] = {};
  each_meeting(shape, place.row, [&](std::int64_t tap, std::int64_t row) {
    const std::int64_t first = (place.image * shape.height + row) * shape.width;
    add_taps<kTaps, kStride>(shape, job.images + first * channels + place.channel,
        job.weights + tap * kTaps * padded(channels) + place.channel,
        place.column * kStride - shape.padding_width, place.room, sums);
  });
  float* const outputs =
      job.outputs +
      ((place.image * shape.out_height + place.row) * shape.out_width + place.column) * channels +
      place.channel;
  for (int v = 0; v < kVectors; ++v) {
    const Floats bias =
        job.bias == nullptr ? Floats{} : load(job.bias + place.channel + v * kLanes);
    for (int i = 0; i < kOutputs && place.column + i < shape.out_width; ++i)
      store(outputs + i * channels + v * kLanes, sums[i][v] + bias, place.room - v * kLanes);
  }
}

template <int kTaps, int kStride>
inline void convolve_rows(const DepthwiseJob& shared, Range rows) {
  constexpr int kOutputs = 4;
  const DepthwiseJob job = shared;
  const WindowShape& shape = job.shape;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    OutputPlace place{.image = row / shape.out_height,
        .row = row % shape.out_height,
        .column = 0,
        .channel = 0,
        .room = 0};
    for (; place.column < shape.out_width; place.column += kOutputs) {
      place.channel = 0;
      place.room = 2 * kLanes;
      for (; place.channel + 2 * kLanes <= shape.channels; place.channel += 2 * kLanes)
        convolve_outputs<kTaps, kStride, kOutputs, 2>(job, place);
      for (; place.channel < shape.channels; place.channel += kLanes) {
        place.room = shape.channels - place.channel;
        convolve_outputs<kTaps, kStride, kOutputs, 1>(job, place);
      }
    }
  }
}

inline void convolve(const DepthwiseJob& job, Range rows) {
  const bool is_dense = job.shape.stride_width == 1;
  switch (job.shape.kernel_width) {
    case 3:
      return is_dense ? convolve_rows<3, 1>(job, rows) : convolve_rows<3, 2>(job, rows);
    case 5:
      return is_dense ? convolve_rows<5, 1>(job, rows) : convolve_rows<5, 2>(job, rows);
    default:
      return is_dense ? convolve_rows<7, 1>(job, rows) : convolve_rows<7, 2>(job, rows);
  }
}

inline void sum_weights(const DepthwiseWeightJob& shared, Range blocks) {
  const DepthwiseWeightJob job = shared;
  const WindowShape& shape = job.shape;
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
      while (channel < end) {
        const RowPair pair{gradient + channel, met + channel, sums + channel, end - channel};
        if (pair.room >= 2 * kLanes) {
          sum_row<2, true>(shape, pair);
          channel += 2 * kLanes;
        } else {
          pair.room >= kLanes ? sum_row<1, true>(shape, pair) : sum_row<1, false>(shape, pair);
          channel += kLanes;
        }
      }
    });
  }
}

/// The gradient of a pixel: the sum over the taps that met it.
template <int kVectors>
inline void differentiate_pixel(const DepthwiseImageJob& job, std::int64_t image, std::int64_t row,
    std::int64_t column, std::int64_t channel, std::int64_t room) {
  const WindowShape& shape = job.shape;
  const std::int64_t channels = shape.channels, wide = padded(channels);
  Floats sums[kVectors] = {};
  const std::int64_t down = row + shape.padding_height, right = column + shape.padding_width;
  std::int64_t out_row = down / shape.stride_height;
  for (std::int64_t y = down % shape.stride_height; y < shape.kernel_height && out_row >= 0;
       y += shape.stride_height, --out_row) {
    if (out_row >= shape.out_height) continue;
    const float* const gradient =
        job.gradient + (image * shape.out_height + out_row) * shape.out_width * channels + channel;
    const float* const weights = job.weights + y * shape.kernel_width * wide + channel;
    std::int64_t out = right / shape.stride_width;
    for (std::int64_t x = right % shape.stride_width; x < shape.kernel_width && out >= 0;
         x += shape.stride_width, --out) {
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
  const WindowShape& shape = job.shape;
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
      .convolve = convolve,
      .sum_weights = sum_weights,
      .differentiate = differentiate};
  return kKernel;
}

}  // namespace lockstep::nn::conv
