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
//
// Note [Lanes are channels]
//
// In the backward pass a vector holds kLanes channels of one window instead. What tap (ty,tx) of a
// filter was multiplied with is one of four neighbours, another one in each lane, for each channel
// has its own winner. So two rows of the padded image are stored alternately, in which these lie
// one behind the other, and the lanes choose among them by their codes:
//
//     column:        2j-1      2j     2j+1    2j+2
//     rows y, y+1:  x00 x10  x01 x11  x02 x12  x03 x13
//                   |______ tx=0 ___|
//                            |______ tx=1 ____|
//                                     |______ tx=2 ___|      code of (dy,dx) = 2 dx + dy
//
// That is one instruction for a tap; with windows in the lanes nine taps take 21. Codes are
// therefore stored as [row][column][channel]; gradients are transposed here.

namespace lockstep::nn::fused {
namespace {

using namespace simd;

constexpr std::int64_t kTaps = 9;
constexpr std::int64_t kSums = kTaps + 1;
constexpr std::int64_t kPlanes = 8, kPatchVectors = 16;

inline std::int64_t whole(std::int64_t count, std::int64_t unit) {
  return parts_of(count, unit) * unit;
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

// A vector that straddles two cache lines loads at half the speed, so all begins at a whole one.
inline float* aligned(float* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  constexpr std::uintptr_t kBytes = kLineFloats * sizeof(float);
  return reinterpret_cast<float*>((address + kBytes - 1) / kBytes * kBytes);
}

inline void clear(float* begin, const float* end) {
  std::memset(begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
}

// Copies an image into a padded one. The last vector of a row overlaps the one before.
template <typename Image>
void pad(const Image* image, const ConvReluPoolShape& shape, float* padded) {
  const std::int64_t width = shape.width, last = width - kLanes;
  for (std::int64_t row = 0; row < shape.height; ++row) {
    const Image* const from = image + row * width;
    float* const to = padded + (row + 1) * row_floats(shape) + 1;
    for (std::int64_t column = 0; column < last; column += kLanes)
      store(to + column, load(from + column));
    if (last >= 0)
      store(to + last, load(from + last));
    else
      for (std::int64_t column = 0; column < width; ++column) to[column] = to_float(from[column]);
  }
}

/// The memory in which an image becomes patches.
class Unpacker {
 public:
  Unpacker(const ConvReluPoolShape& shape, float* scratch)
      : shape_(shape),
        padded_(aligned(scratch)),
        planes_(padded_ + padded_floats(shape)),
        patches_(planes_ + kPlanes * plane_floats(shape)) {
    clear(padded_, patches_);
  }

  /// Counts the floats of the scratch.
  static std::int64_t floats(const ConvReluPoolShape& shape) {
    return kLineFloats + padded_floats(shape) + kPlanes * plane_floats(shape) +
           whole(pooled_size(shape), kLanes) * kPatchVectors;
  }

  /// Returns the image's patches, those of kLanes windows one behind the other.
  template <typename Image>
  const float* operator()(const Image* image) const {
    pad(image, shape_, padded_);
    split();
    cut();
    return patches_;
  }

  float* end() const { return patches_ + whole(pooled_size(shape_), kLanes) * kPatchVectors; }

 private:
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
  Floats code;
};

inline Floats bits(int value) { return reinterpret_cast<Floats>(Ints{} + value); }

// The first largest wins, as in LibTorch's pooling; ReLU keeps a NaN. Codes, which are shifted to
// the left, are chosen as floats, for of integers the compiler would make bytes before it chooses.
[[gnu::always_inline]] inline Winner winner_of(const float* results, int shift) {
  const Higher above = higher_of(load(results), load(results + kLanes));
  const Higher below = higher_of(load(results + 2 * kLanes), load(results + 3 * kLanes));
  const Higher best = higher_of(above.value, below.value);
  const Ints dead = best.value <= Floats{};
  const Floats of_above = above.is_second ? bits(2 << shift) : Floats{};
  const Floats of_below = below.is_second ? bits(3 << shift) : bits(1 << shift);
  const Floats of_best = best.is_second ? of_below : of_above;
  return {dead ? Floats{} : best.value, dead ? bits(kDead << shift) : of_best};
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

/// Where the results of kLanes windows go, or of the last ones, which may be fewer.
template <typename Pooled>
struct Destination {
  Pooled* pooled;  ///< of the first window, in the first channel
  std::uint8_t* codes;
  std::int64_t plane, code_stride, room;

  template <bool kIsWhole>
  void store_winners(const float* results, std::int64_t channels) const {
    const auto code = [&](std::int64_t channel, int shift) {
      const Winner winner = winner_of(results + channel * 4 * kLanes, shift);
      Pooled* const to = pooled + channel * plane;
      store(to, winner.value, kIsWhole ? std::int64_t{kLanes} : room);
      ask_ahead_to_write(to);
      return reinterpret_cast<Ints>(winner.code);
    };
    std::int64_t channel = 0;
    for (; channel + 4 <= channels; channel += 4) {
      store_codes<kIsWhole>(channel,
          code(channel, 0) | code(channel + 1, 8) | code(channel + 2, 16) | code(channel + 3, 24));
    }
    if (channel == channels) return;
    Ints rest{};
    for (int i = 0; channel + i < channels; ++i) rest |= code(channel + i, 8 * i);
    store_codes<kIsWhole>(channel, rest);
  }

 private:
  // Of four channels, a byte each.
  template <bool kIsWhole>
  [[gnu::always_inline]] void store_codes(std::int64_t channel, Ints words) const {
    const int count = kIsWhole ? kLanes : static_cast<int>(room);
    std::uint8_t stored[4 * kLanes];
    __builtin_memcpy(stored, &words, sizeof(stored));
#pragma GCC unroll 16
    for (int lane = 0; lane < count; ++lane)
      __builtin_memcpy(codes + lane * code_stride + channel, stored + 4 * lane, 4);
  }
};

// First all results, then all winners: how far a processor looks ahead is less than both of one.
template <typename Pooled>
inline void forward_image(
    const ForwardJob& job, const float* patches, std::int64_t image, float* results) {
  const std::int64_t plane = pooled_size(job.shape), channels = job.shape.channels;
  auto* const pooled = static_cast<Pooled*>(job.pooled) + image * channels * plane;
  std::uint8_t* const codes = job.codes + image * plane * job.code_stride;
  each_vector(plane, [&](std::int64_t at, std::int64_t room) {
    convolve_channels(job, {patches + at * kPatchVectors}, results);
    const Destination<Pooled> to{
        pooled + at, codes + at * job.code_stride, plane, job.code_stride, room};
    if (room >= kLanes)
      to.template store_winners<true>(results, channels);
    else
      to.template store_winners<false>(results, channels);
  });
}

// Of a row of the padded image and of the next one.
inline std::int64_t pair_floats(const ConvReluPoolShape& shape) { return 2 * row_floats(shape); }

inline std::int64_t pair_count(const ConvReluPoolShape& shape) {
  return 2 * pooled_height(shape) + 1;
}

/// The memory in which each row of an image is stored alternately with the next one.
class RowPairs {
 public:
  RowPairs(const ConvReluPoolShape& shape, float* scratch)
      : shape_(shape), padded_(aligned(scratch)), pairs_(padded_ + padded_floats(shape)) {
    clear(padded_, pairs_);
  }

  /// Counts the floats of the scratch.
  static std::int64_t floats(const ConvReluPoolShape& shape) {
    return kLineFloats + padded_floats(shape) + pair_count(shape) * pair_floats(shape);
  }

  /// Returns the image's pairs, from the one with the row of zeros above it.
  template <typename Image>
  const float* operator()(const Image* image) const {
    pad(image, shape_, padded_);
    for (std::int64_t row = 0; row < pair_count(shape_); ++row)
      alternate(padded_ + row * row_floats(shape_), pairs_ + row * pair_floats(shape_));
    return pairs_;
  }

  float* end() const { return pairs_ + pair_count(shape_) * pair_floats(shape_); }

 private:
  void alternate(const float* row, float* to) const {
    using Lanes = typename LanesBelow<kLanes>::List;
    for (std::int64_t column = 0; column < row_floats(shape_); column += kLanes) {
      const Floats upper = load(row + column), lower = load(row + row_floats(shape_) + column);
      store(to + 2 * column, in_turn<0>(upper, lower, Lanes()));
      store(to + 2 * column + kLanes, in_turn<kLanes / 2>(upper, lower, Lanes()));
    }
  }

  template <int kFirst, int... kLane>
  static Floats in_turn(Floats upper, Floats lower, LaneList<kLane...>) {
    return __builtin_shufflevector(upper, lower, (kFirst + kLane / 2 + kLane % 2 * kLanes)...);
  }

  ConvReluPoolShape shape_;
  float *padded_, *pairs_;
};

// Four floats, and again the same ones.
inline Floats fours(const float* from) {
#if defined(__AVX512BW__)
  return _mm512_broadcast_f32x4(_mm_loadu_ps(from));
#elif defined(__AVX2__)
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(from));
#else
  return load(from);
#endif
}

// Takes one of its four in each lane, by the lowest two bits.
inline Floats chosen(Floats fours, Ints which) {
#if defined(__AVX512BW__)
  return _mm512_permutevar_ps(fours, reinterpret_cast<__m512i>(which));
#elif defined(__AVX2__)
  return _mm256_permutevar_ps(fours, reinterpret_cast<__m256i>(which));
#else
  Floats result;
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = fours[which[lane] & 3];
  return result;
#endif
}

// Transposes [channel][window] for kLanes channels; lanes beyond the last channel have its values.
// The last vectors overlap the ones before.
template <typename Pooled>
inline void transpose_channels(
    const Pooled* gradients, std::int64_t channels, std::int64_t plane, float* transposed) {
  const std::int64_t room = least(plane, kLanes);
  for (std::int64_t next = 0; next < plane; next += kLanes) {
    const std::int64_t at = least(next, plane - room);
    Floats rows[kLanes];
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane)
      rows[lane] = load(gradients + least(lane, channels - 1) * plane + at, room);
    transpose(rows);
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) store(transposed + (at + lane) * kLanes, rows[lane]);
  }
}

// Adds what the windows of an image give kLanes channels, and asks for the gradients of the `next`
// ones meanwhile.
template <typename Pooled>
inline void add_windows(const BackwardJob& job, const float* pairs, const float* gradients,
    const std::uint8_t* codes, const Pooled* next, float* totals) {
  const std::int64_t pair = pair_floats(job.shape), width = pooled_width(job.shape);
  Floats sums[kSums] = {};
  for (std::int64_t row = 0; row < pooled_height(job.shape); ++row) {
    const float* at = pairs + 2 * row * pair;
    for (std::int64_t column = 0; column < width; ++column) {
      const Ints code = load(codes);
      const Floats live = code < kDead ? load(gradients) : Floats{};
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap)
        sums[tap] += live * chosen(fours(at + tap / 3 * pair + tap % 3 * 2), code);
      sums[kTaps] += live;
      __builtin_prefetch(next);
      next += kLanes;
      at += 4;
      gradients += kLanes;
      codes += job.code_stride;
    }
  }
  for (std::int64_t i = 0; i < kSums; ++i)
    store(totals + i * kLanes, load(totals + i * kLanes) + sums[i]);
}

template <typename Pooled>
inline void backward_image(const BackwardJob& job, const float* pairs, std::int64_t image,
    float* totals, float* transposed) {
  const std::int64_t plane = pooled_size(job.shape), channels = job.shape.channels;
  for (std::int64_t first = 0; first < channels; first += kLanes) {
    const auto* const gradients =
        static_cast<const Pooled*>(job.pooled_gradient) + (image * channels + first) * plane;
    transpose_channels(gradients, channels - first, plane, transposed);
    add_windows(job, pairs, transposed, job.codes + image * plane * job.code_stride + first,
        gradients + kLanes * plane, totals + first * kSums);
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

// [group of kLanes channels][sum][lane].
inline std::int64_t total_floats(const ConvReluPoolShape& shape) {
  return whole(shape.channels, kLanes) * kSums;
}

template <typename Image, typename Pooled>
void backward_images(const BackwardJob& job) {
  const RowPairs pairs(job.shape, job.scratch);
  float *const totals = pairs.end(), *const transposed = totals + total_floats(job.shape);
  clear(totals, transposed);
  for (std::int64_t image = 0; image < job.image_count; ++image) {
    const std::int64_t at = image * job.shape.height * job.shape.width;
    const auto* const pixels = static_cast<const Image*>(job.images) + at;
    backward_image<Pooled>(job, pairs(pixels), image, totals, transposed);
  }
  for (std::int64_t channel = 0; channel < job.shape.channels; ++channel) {
    const float* const from = totals + channel / kLanes * kLanes * kSums + channel % kLanes;
    for (std::int64_t i = 0; i < kSums; ++i) job.sums[channel * kSums + i] = from[i * kLanes];
  }
}

std::int64_t forward_scratch(const ConvReluPoolShape& shape) {
  return Unpacker::floats(shape) + shape.channels * 4 * kLanes;
}

std::int64_t backward_scratch(const ConvReluPoolShape& shape) {
  return RowPairs::floats(shape) + total_floats(shape) + whole(pooled_size(shape), kLanes) * kLanes;
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
