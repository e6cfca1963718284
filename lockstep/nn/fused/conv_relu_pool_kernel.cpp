#include "lockstep/nn/fused/conv_relu_pool_kernel.h"

#include "lockstep/simd/vectors.h"

// The loops of the block, compiled once for each instruction set.
//
// Note [Lanes are windows]
//
// A vector holds the same thing for kLanes windows that follow each other, row after row. The 4x4
// pixels that a window's four convolution results need are then 4 rows of 4 vectors, a patch:
//
//     column:   2j-1   2j   2j+1   2j+2        j = the window's column in the pooled image
//     row 2i-1   x00   x01   x02    x03
//     row 2i     x10   x11   x12    x13        result (dy,dx) =
//     row 2i+1   x20   x21   x22    x23            bias + sum weight[ty][tx] * x[dy+ty][dx+tx]
//     row 2i+2   x30   x31   x32    x33
//
// The output comes out as [channel][row][column], the order in which the next linear layer wants it
// flattened. An image becomes patches in three passes, each of which reads what the one before has
// long written: it is padded with zeros; its columns are split into planes, four copies of the even
// rows and four of the odd ones, in which windows follow each other without a gap; the planes are
// cut into vectors, so that a patch is one piece and its vectors are at constant distances.

namespace lockstep::nn::fused {
namespace {

using namespace simd;

constexpr std::int64_t kTaps = 9;
constexpr std::int64_t kSums = kTaps + 1;
constexpr std::int64_t kLineFloats = 16;  // of a cache line
constexpr std::int64_t kPlanes = 8, kPatchVectors = 16;

inline std::int64_t whole(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

inline std::int64_t pooled_height(const ConvReluPoolShape& shape) { return shape.height / 2; }

inline std::int64_t pooled_width(const ConvReluPoolShape& shape) { return shape.width / 2; }

inline std::int64_t pooled_size(const ConvReluPoolShape& shape) {
  return pooled_height(shape) * pooled_width(shape);
}

// Of a padded row: what the vectors of a row of windows read.
inline std::int64_t row_floats(const ConvReluPoolShape& shape) {
  return whole(2 * whole(pooled_width(shape), kLanes) + 4, kLineFloats);
}

// Of zeros there is a row above and, if the height is even, one below.
inline std::int64_t padded_floats(const ConvReluPoolShape& shape) {
  return (2 * pooled_height(shape) + 3) * row_floats(shape);
}

// A row of windows more than there are, for the lower rows of patches; the last vector goes beyond.
inline std::int64_t plane_floats(const ConvReluPoolShape& shape) {
  return whole(pooled_size(shape) + pooled_width(shape) + kLanes, kLineFloats);
}

/// The memory in which an image becomes patches.
class Unpacker {
 public:
  // A vector that straddles two cache lines loads at half the speed, so all begins at a whole one.
  Unpacker(const ConvReluPoolShape& shape, float* scratch)
      : shape_(shape),
        padded_(aligned(scratch)),
        planes_(padded_ + padded_floats(shape)),
        patches_(planes_ + kPlanes * plane_floats(shape)) {
    const std::int64_t count = patches_ - padded_;
    std::memset(padded_, 0, static_cast<std::size_t>(count) * sizeof(float));
  }

  /// Counts the floats of the scratch.
  static std::int64_t floats(const ConvReluPoolShape& shape) {
    return kLineFloats + padded_floats(shape) + kPlanes * plane_floats(shape) +
           whole(pooled_size(shape), kLanes) * kPatchVectors;
  }

  /// Returns the image's patches, those of kLanes windows one behind the other.
  template <typename Image>
  const float* operator()(const Image* image) const {
    pad(image);
    split();
    cut();
    return patches_;
  }

  float* end() const { return patches_ + whole(pooled_size(shape_), kLanes) * kPatchVectors; }

 private:
  static float* aligned(float* scratch) {
    const auto address = reinterpret_cast<std::uintptr_t>(scratch);
    constexpr std::uintptr_t kBytes = kLineFloats * sizeof(float);
    return reinterpret_cast<float*>((address + kBytes - 1) / kBytes * kBytes);
  }

  // The last vector of a row overlaps the one before.
  template <typename Image>
  void pad(const Image* image) const {
    const std::int64_t width = shape_.width, last = width - kLanes;
    for (std::int64_t row = 0; row < shape_.height; ++row) {
      const Image* const from = image + row * width;
      float* const to = padded_ + (row + 1) * row_floats(shape_) + 1;
      for (std::int64_t column = 0; column < last; column += kLanes)
        store(to + column, load(from + column));
      if (last >= 0)
        store(to + last, load(from + last));
      else
        for (std::int64_t column = 0; column < width; ++column) to[column] = to_float(from[column]);
    }
  }

  template <int... kLane>
  static Floats every_second(const float* from, LaneList<kLane...>) {
    return __builtin_shufflevector(load(from), load(from + kLanes), (2 * kLane)...);
  }

  // What a vector writes beyond its row is overwritten by the next one.
  void split() const {
    const std::int64_t width = pooled_width(shape_), plane = plane_floats(shape_);
    for (std::int64_t row = 0; row < 2 * pooled_height(shape_) + 2; ++row) {
      const float* const from = padded_ + row * row_floats(shape_);
      float* const to = planes_ + row % 2 * 4 * plane + row / 2 * width;
      for (std::int64_t column = 0; column < width; column += kLanes) {
#pragma GCC unroll 4
        for (std::int64_t copy = 0; copy < 4; ++copy) {
          store(to + copy * plane + column,
              every_second(from + 2 * column + copy, LanesBelow<kLanes>::List()));
        }
      }
    }
  }

  void cut() const {
    const std::int64_t width = pooled_width(shape_), plane = plane_floats(shape_);
    for (std::int64_t place = 0; place < pooled_size(shape_); place += kLanes) {
#pragma GCC unroll 16
      for (int vector = 0; vector < kPatchVectors; ++vector) {
        const int row = vector / 4, copy = vector % 4;
        store(patches_ + place * kPatchVectors + vector * kLanes,
            load(planes_ + (row % 2 * 4 + copy) * plane + row / 2 * width + place));
      }
    }
  }

  ConvReluPoolShape shape_;
  float *padded_, *planes_, *patches_;
};

/// The pixels of kLanes windows.
struct Patch {
  const float* vectors;

  Floats at(int y, int x) const { return load(vectors + (4 * y + x) * kLanes); }
};

struct Higher {
  Floats value;
  Ints is_second;
};

// A NaN beats every number.
inline Higher higher_of(Floats first, Floats second) {
  const Ints is_second = (second > first) | (second != second);
  return {is_second ? second : first, is_second};
}

struct Winner {
  Floats value;
  Ints code;
};

// The first largest wins, as in LibTorch's pooling; ReLU keeps a NaN. Codes are chosen as floats,
// for of integers the compiler would make bytes before it chooses.
inline Winner winner_of(const float* results) {
  const Higher above = higher_of(load(results), load(results + kLanes));
  const Higher below = higher_of(load(results + 2 * kLanes), load(results + 3 * kLanes));
  const Higher best = higher_of(above.value, below.value);
  const Ints dead = best.value <= Floats{};
  const Floats of_above = above.is_second ? all(1.0F) : Floats{};
  const Floats of_below = below.is_second ? all(3.0F) : all(2.0F);
  const Floats of_best = best.is_second ? of_below : of_above;
  const Floats code = dead ? all(float{kDead}) : of_best;
  return {dead ? Floats{} : best.value, __builtin_convertvector(code, Ints)};
}

// Several channels at once: the sums of one wait for each other.
template <int kChannels>
[[gnu::always_inline]] inline void convolve(
    const Patch& patch, const float* weight, const float* bias, float* results) {
  Floats sums[kChannels * 4];
#pragma GCC unroll 8
  for (int i = 0; i < kChannels * 4; ++i) sums[i] = all(bias[i / 4]);
#pragma GCC unroll 9
  for (int tap = 0; tap < kTaps; ++tap) {
#pragma GCC unroll 2
    for (int channel = 0; channel < kChannels; ++channel) {
      const Floats factor = all(weight[channel * kTaps + tap]);
#pragma GCC unroll 4
      for (int place = 0; place < 4; ++place)
        sums[channel * 4 + place] += factor * patch.at(tap / 3 + place / 2, tap % 3 + place % 2);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kChannels * 4; ++i) store(results + i * kLanes, sums[i]);
}

// The four results of kLanes windows, in each channel.
inline void convolve_channels(const ForwardJob& job, const Patch& patch, float* results) {
  std::int64_t channel = 0;
  for (; channel + 2 <= job.shape.channels; channel += 2)
    convolve<2>(
        patch, job.weight + channel * kTaps, job.bias + channel, results + channel * 4 * kLanes);
  if (channel < job.shape.channels)
    convolve<1>(
        patch, job.weight + channel * kTaps, job.bias + channel, results + channel * 4 * kLanes);
}

// First all results, then all winners: how far a processor looks ahead is less than both of one.
template <typename Pooled>
inline void forward_image(
    const ForwardJob& job, const float* patches, std::int64_t image, float* results) {
  const std::int64_t plane = pooled_size(job.shape), channels = job.shape.channels;
  each_vector(plane, [&](std::int64_t at, std::int64_t room) {
    convolve_channels(job, {patches + at * kPatchVectors}, results);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const Winner winner = winner_of(results + channel * 4 * kLanes);
      const std::int64_t place = (image * channels + channel) * plane + at;
      store(static_cast<Pooled*>(job.pooled) + place, winner.value, room);
      store(job.codes + place, winner.code, room);
    }
  });
}

struct Sums {
  Floats of[kSums];
};

// Makes the compiler compute these before what follows them: else it computes all that it can at
// once, and sums leave the registers.
inline void settle([[maybe_unused]] Floats& one, [[maybe_unused]] Floats& other) {
#if defined(__x86_64__)
  asm("" : "+v"(one), "+v"(other));
#endif
}

// Takes the 3x3 of the 4x4 pixels that the winner saw, lane by lane: `right`, `below` locate it.
inline void add_products(Sums& sums, const Patch& patch, Floats gradient, Ints code) {
  const Floats live = code == kDead ? Floats{} : gradient;
  const Ints right = (code & 1) != 0;
  const Ints below = (code & 2) != 0;
#pragma GCC unroll 3
  for (int x = 0; x < 3; ++x) {
    Floats upper = right ? patch.at(0, x + 1) : patch.at(0, x);
#pragma GCC unroll 3
    for (int y = 0; y < 3; ++y) {
      Floats lower = right ? patch.at(y + 1, x + 1) : patch.at(y + 1, x);
      sums.of[3 * y + x] += live * (below ? lower : upper);
      settle(sums.of[3 * y + x], lower);
      upper = lower;
    }
  }
  sums.of[kTaps] += live;
}

template <typename Pooled>
inline void backward_image(
    const BackwardJob& job, const float* patches, std::int64_t image, float* totals) {
  const std::int64_t plane = pooled_size(job.shape);
  for (std::int64_t channel = 0; channel < job.shape.channels; ++channel) {
    const std::int64_t start = (image * job.shape.channels + channel) * plane;
    const auto* const gradients = static_cast<const Pooled*>(job.pooled_gradient) + start;
    const std::uint8_t* const codes = job.codes + start;
    Sums sums{};
    each_vector(plane, [&](std::int64_t at, std::int64_t room) {
      add_products(
          sums, {patches + at * kPatchVectors}, load(gradients + at, room), load(codes + at, room));
    });
    for (std::int64_t tap = 0; tap < kSums; ++tap) {
      float* const total = totals + (channel * kSums + tap) * kLanes;
      store(total, load(total) + sums.of[tap]);
    }
  }
}

template <typename Image, typename Pooled>
void forward_images(const ForwardJob& job) {
  const Unpacker unpack(job.shape, job.scratch);
  for (std::int64_t image = 0; image < job.image_count; ++image) {
    const auto* const from =
        static_cast<const Image*>(job.images) + image * job.shape.height * job.shape.width;
    forward_image<Pooled>(job, unpack(from), image, unpack.end());
  }
}

template <typename Image, typename Pooled>
void backward_images(const BackwardJob& job) {
  const Unpacker unpack(job.shape, job.scratch);
  float* const totals = unpack.end();
  const std::int64_t count = job.shape.channels * kSums;
  std::memset(totals, 0, static_cast<std::size_t>(count * kLanes) * sizeof(float));
  for (std::int64_t image = 0; image < job.image_count; ++image) {
    const std::int64_t at = image * job.shape.height * job.shape.width;
    backward_image<Pooled>(job, unpack(static_cast<const Image*>(job.images) + at), image, totals);
  }
  for (std::int64_t i = 0; i < count; ++i) job.sums[i] = sum(load(totals + i * kLanes));
}

std::int64_t forward_scratch(const ConvReluPoolShape& shape) {
  return Unpacker::floats(shape) + shape.channels * 4 * kLanes;
}

std::int64_t backward_scratch(const ConvReluPoolShape& shape) {
  return Unpacker::floats(shape) + shape.channels * kSums * kLanes;
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
