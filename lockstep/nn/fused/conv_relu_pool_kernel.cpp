#include "lockstep/nn/fused/conv_relu_pool_kernel.h"

#include "lockstep/simd/vectors.h"

// The loops of the block, compiled once for each instruction set.
//
// Note [Lanes are pooled columns]
//
// A vector holds the same thing for kLanes neighbouring windows of one pooled row. The 4x4 pixels
// that a window's four convolution results need are then 4 rows of 4 vectors,
//
//     column:   2j-1   2j   2j+1   2j+2        j = the window's column, one lane each
//     row 2i-1   x00   x01   x02    x03
//     row 2i     x10   x11   x12    x13        result (dy,dx) =
//     row 2i+1   x20   x21   x22    x23            bias + sum weight[ty][tx] * x[dy+ty][dx+tx]
//     row 2i+2   x30   x31   x32    x33
//
// and the output comes out as [channel][row][column], the order in which the next linear layer
// wants it flattened. unpack() lays each image row out as these four strided copies.

namespace lockstep::nn::fused {
namespace {

using namespace simd;

constexpr std::int64_t kTaps = 9;
constexpr std::int64_t kSums = kTaps + 1;
constexpr std::int64_t kLineFloats = 16;  // of a cache line

inline std::int64_t pooled_height(const ConvReluPoolShape& shape) { return shape.height / 2; }

inline std::int64_t pooled_width(const ConvReluPoolShape& shape) { return shape.width / 2; }

inline std::int64_t pooled_size(const ConvReluPoolShape& shape) {
  return pooled_height(shape) * pooled_width(shape);
}

inline std::int64_t padded_columns(const ConvReluPoolShape& shape) {
  return (pooled_width(shape) + kLanes - 1) / kLanes * kLanes;
}

// One row of zeros above the image, one below.
inline std::int64_t unpacked_floats(const ConvReluPoolShape& shape) {
  return (2 * pooled_height(shape) + 2) * 4 * padded_columns(shape);
}

// Copies one image row to unpacked[c * columns + j] = row[2 * j + c - 1], zero outside the image.
template <typename Image>
inline void unpack_row(const Image* row, const ConvReluPoolShape& shape, float* __restrict line,
    float* __restrict unpacked) {
  const std::int64_t columns = padded_columns(shape);
  for (std::int64_t column = 0; column < shape.width; ++column) {
    line[column + 1] = to_float(row[column]);
  }
  for (std::int64_t copy = 0; copy < 4; ++copy) {
    const float* from = line + copy;
    float* to = unpacked + copy * columns;
    for (std::int64_t j = 0; j < columns; ++j) to[j] = from[2 * j];
  }
}

// Four more than two rows of windows, rounded up: a vector that straddles two cache lines loads at
// half the speed, so what follows the line must begin at a whole one.
inline std::int64_t line_floats(const ConvReluPoolShape& shape) {
  return (2 * padded_columns(shape) + 4 + kLineFloats - 1) / kLineFloats * kLineFloats;
}

inline float* aligned(float* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  constexpr std::uintptr_t kBytes = kLineFloats * sizeof(float);
  return reinterpret_cast<float*>((address + kBytes - 1) / kBytes * kBytes);
}

// Unpacked row r is image row r - 1. `line` keeps zeros around the row that passes through it.
template <typename Image>
inline void unpack(
    const Image* image, const ConvReluPoolShape& shape, float* line, float* unpacked) {
  const std::int64_t row_floats = 4 * padded_columns(shape);
  const std::int64_t rows = 2 * pooled_height(shape) + 2;
  std::memset(line, 0, static_cast<std::size_t>(line_floats(shape)) * sizeof(float));
  std::memset(unpacked, 0, static_cast<std::size_t>(row_floats) * sizeof(float));
  for (std::int64_t row = 1; row < rows; ++row) {
    float* to = unpacked + row * row_floats;
    if (row <= shape.height) {
      unpack_row(image + (row - 1) * shape.width, shape, line, to);
    } else {
      std::memset(to, 0, static_cast<std::size_t>(row_floats) * sizeof(float));
    }
  }
}

struct Patch {
  Floats x[4][4];
};

inline Patch load_patch(const float* unpacked, std::int64_t row, std::int64_t columns) {
  Patch patch;
  for (int y = 0; y < 4; ++y) {
    for (int c = 0; c < 4; ++c) patch.x[y][c] = load(unpacked + ((2 * row + y) * 4 + c) * columns);
  }
  return patch;
}

struct Winner {
  Floats value;
  Ints code;
};

// The first largest wins, as in LibTorch's pooling; a NaN beats every number, and ReLU keeps it.
inline Winner winner_of(const Floats (&results)[4]) {
  Winner winner{results[0], Ints{}};
  for (int place = 1; place < 4; ++place) {
    const Ints better = (results[place] > winner.value) | (results[place] != results[place]);
    winner.value = better ? results[place] : winner.value;
    winner.code = better ? Ints{} + place : winner.code;
  }
  const Ints dead = winner.value <= Floats{};
  winner.value = dead ? Floats{} : winner.value;
  winner.code = dead ? Ints{} + kDead : winner.code;
  return winner;
}

inline Winner convolve(const Patch& patch, const float* weight, float bias) {
  Floats results[4] = {all(bias), all(bias), all(bias), all(bias)};
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 3; ++x) {
      const Floats factor = all(weight[3 * y + x]);
      for (int place = 0; place < 4; ++place) {
        results[place] += factor * patch.x[y + place / 2][x + place % 2];
      }
    }
  }
  return winner_of(results);
}

template <typename Pooled>
inline void forward_image(const ForwardJob& job, const float* unpacked, std::int64_t image) {
  const auto& shape = job.shape;
  const std::int64_t plane = pooled_size(shape);
  const std::int64_t start = image * shape.channels * plane;
  for (std::int64_t row = 0; row < pooled_height(shape); ++row) {
    for (std::int64_t column = 0; column < pooled_width(shape); column += kLanes) {
      const Patch patch = load_patch(unpacked + column, row, padded_columns(shape));
      const std::int64_t place = row * pooled_width(shape) + column;
      for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        const Winner winner = convolve(patch, job.weight + channel * kTaps, job.bias[channel]);
        const std::int64_t at = start + channel * plane + place;
        store(static_cast<Pooled*>(job.pooled) + at, winner.value, plane - place);
        store(job.codes + at, winner.code, plane - place);
      }
    }
  }
}

struct Sums {
  Floats of[kSums];
};

// Takes the 3x3 of the 4x4 pixels that the winner saw, lane by lane: `right`, `below` locate it.
inline Floats seen_by_winner(const Patch& patch, int y, int x, Ints right, Ints below) {
  const Floats upper = right ? patch.x[y][x + 1] : patch.x[y][x];
  const Floats lower = right ? patch.x[y + 1][x + 1] : patch.x[y + 1][x];
  return below ? lower : upper;
}

inline void add_products(Sums& sums, const Patch& patch, Floats gradient, Ints code) {
  const Floats live = code == kDead ? Floats{} : gradient;
  const Ints right = (code & 1) != 0;
  const Ints below = (code & 2) != 0;
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 3; ++x) {
      sums.of[3 * y + x] += live * seen_by_winner(patch, y, x, right, below);
    }
  }
  sums.of[kTaps] += live;
}

inline Ints lane_numbers() {
  Ints numbers{};
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = lane;
  return numbers;
}

template <typename Pooled>
inline Sums channel_sums(const ConvReluPoolShape& shape, const float* unpacked,
    const Pooled* gradients, const std::uint8_t* codes) {
  const Ints lanes = lane_numbers();
  const std::int64_t width = pooled_width(shape);
  Sums sums{};
  for (std::int64_t row = 0; row < pooled_height(shape); ++row) {
    for (std::int64_t column = 0; column < width; column += kLanes) {
      const std::int64_t at = row * width + column;
      const std::int64_t room = pooled_size(shape) - at;
      // Lanes beyond the row belong to the next one, which has its own turn.
      const Ints beyond = lanes >= static_cast<std::int32_t>(width - column);
      const Ints code = beyond ? Ints{} + kDead : load(codes + at, room);
      add_products(sums, load_patch(unpacked + column, row, padded_columns(shape)),
          load(gradients + at, room), code);
    }
  }
  return sums;
}

template <typename Pooled>
inline void backward_image(
    const BackwardJob& job, const float* unpacked, std::int64_t image, float* totals) {
  const std::int64_t plane = pooled_size(job.shape);
  for (std::int64_t channel = 0; channel < job.shape.channels; ++channel) {
    const std::int64_t at = (image * job.shape.channels + channel) * plane;
    const auto* gradients = static_cast<const Pooled*>(job.pooled_gradient) + at;
    const Sums sums = channel_sums(job.shape, unpacked, gradients, job.codes + at);
    for (std::int64_t tap = 0; tap < kSums; ++tap) {
      float* total = totals + (channel * kSums + tap) * kLanes;
      store(total, load(total) + sums.of[tap]);
    }
  }
}

template <typename Image, typename Pooled>
void forward_images(const ForwardJob& job) {
  float* line = aligned(job.scratch);
  float* unpacked = line + line_floats(job.shape);
  for (std::int64_t image = 0; image < job.image_count; ++image) {
    const std::int64_t at = image * job.shape.height * job.shape.width;
    unpack(static_cast<const Image*>(job.images) + at, job.shape, line, unpacked);
    forward_image<Pooled>(job, unpacked, image);
  }
}

template <typename Image, typename Pooled>
void backward_images(const BackwardJob& job) {
  float* line = aligned(job.scratch);
  float* unpacked = line + line_floats(job.shape);
  float* totals = unpacked + unpacked_floats(job.shape);
  const std::int64_t count = job.shape.channels * kSums;
  std::memset(totals, 0, static_cast<std::size_t>(count * kLanes) * sizeof(float));
  for (std::int64_t image = 0; image < job.image_count; ++image) {
    const std::int64_t at = image * job.shape.height * job.shape.width;
    unpack(static_cast<const Image*>(job.images) + at, job.shape, line, unpacked);
    backward_image<Pooled>(job, unpacked, image, totals);
  }
  for (std::int64_t i = 0; i < count; ++i) job.sums[i] = sum(load(totals + i * kLanes));
}

std::int64_t forward_scratch(const ConvReluPoolShape& shape) {
  return kLineFloats + line_floats(shape) + unpacked_floats(shape);
}

std::int64_t backward_scratch(const ConvReluPoolShape& shape) {
  return forward_scratch(shape) + shape.channels * kSums * kLanes;
}

void forward(const ForwardJob& job) {
  if (job.image_element == Element::kFloat) {
    job.pooled_element == Element::kFloat ? forward_images<float, float>(job)
                                          : forward_images<float, BFloat16>(job);
  } else {
    job.pooled_element == Element::kFloat ? forward_images<BFloat16, float>(job)
                                          : forward_images<BFloat16, BFloat16>(job);
  }
}

void backward(const BackwardJob& job) {
  if (job.image_element == Element::kFloat) {
    job.pooled_element == Element::kFloat ? backward_images<float, float>(job)
                                          : backward_images<float, BFloat16>(job);
  } else {
    job.pooled_element == Element::kFloat ? backward_images<BFloat16, float>(job)
                                          : backward_images<BFloat16, BFloat16>(job);
  }
}

}  // namespace

const ConvReluPoolKernel& LOCKSTEP_BUILD(conv_relu_pool)() {
  static constexpr ConvReluPoolKernel kKernel{
      LOCKSTEP_BUILD_NAME, forward_scratch, backward_scratch, forward, backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
