#include "lockstep/data/transforms/ops/resample.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::data {
namespace {

// The input positions, with weights, of each output position of one axis: see TapView.
struct ResampleTaps {
  std::int64_t stride = 0;
  std::vector<TapRange> ranges = {};
  std::vector<std::uint32_t> upper = {};
  std::vector<std::uint32_t> lower = {};

  TapView view() const {
    return {ranges.data(), upper.data(), lower.data(), stride, std::ssize(ranges)};
  }
};

// One axis of a resampling.
struct ResampleAxis {
  std::int64_t input;   // positions that there are
  std::int64_t output;  // positions that they are scaled to
  std::int64_t first;   // position of the output that is wanted first
  std::int64_t count;   // how many there are
};

constexpr int kWeightBits = 22;
constexpr int kLowerBits = 11;

double triangle(double x) { return std::max(0., 1 - std::abs(x)); }

// Keys' cubic convolution with a = -0.5.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

std::int32_t fixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

std::uint32_t packed(std::int32_t first, std::int32_t second) {
  return static_cast<std::uint32_t>(first & 0xFFFF) | static_cast<std::uint32_t>(second) << 16;
}

// Where an axis is looked at from: the input under one output position.
struct Window {
  double center;
  double support;

  // Ends move to the nearest middle of a pixel; towards 0 below 0, which is cut off anyway.
  TapRange range(std::int64_t input) const {
    constexpr double kHalf = 0.5;
    const auto start = std::max(static_cast<std::int32_t>(center - support + kHalf), 0);
    const auto end = static_cast<std::int64_t>(center + support + kHalf);
    return {start, static_cast<std::int32_t>(std::min(end, input)) - start};
  }
};

class TapWriter {
 public:
  TapWriter(ResampleTaps& taps, Interpolation interpolation, double scale)
      : taps_(taps),
        filter_(interpolation == Interpolation::kBicubic ? cubic : triangle),
        inverse_scale_(1 / scale) {}

  void write(std::size_t position, double center) {
    const TapRange range = taps_.ranges[position];
    weights_.assign(static_cast<std::size_t>(2 * taps_.stride), 0);
    double sum = 0;
    for (std::int32_t i = 0; i < range.count; ++i) {
      const double weight = filter_((i + range.start - center + 0.5) * inverse_scale_);
      weights_[static_cast<std::size_t>(i)] = weight;
      sum += weight;
    }
    for (double& weight : weights_) weight = sum == 0 ? weight : weight / sum;
    pack(position);
  }

 private:
  void pack(std::size_t position) {
    const auto pairs = static_cast<std::size_t>(taps_.stride);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::int32_t first = fixed(weights_[2 * pair]);
      const std::int32_t second = fixed(weights_[2 * pair + 1]);
      constexpr std::int32_t kLowerMask = (1 << kLowerBits) - 1;
      taps_.upper[position * pairs + pair] = packed(first >> kLowerBits, second >> kLowerBits);
      taps_.lower[position * pairs + pair] = packed(first & kLowerMask, second & kLowerMask);
    }
  }

  ResampleTaps& taps_;
  double (*filter_)(double);
  double inverse_scale_;
  std::vector<double> weights_;
};

// The taps of an axis in the arithmetic of Pillow's Resample.c: the filter is as wide as an output
// pixel, at least as wide as an input pixel, and cut off at the ends.
ResampleTaps resample_taps(const ResampleAxis& axis, Interpolation interpolation) {
  const double step = static_cast<double>(axis.input) / static_cast<double>(axis.output);
  const double scale = std::max(step, 1.);
  const double support = (interpolation == Interpolation::kBicubic ? 2. : 1.) * scale;
  const auto positions = static_cast<std::size_t>(axis.count);
  // At most ceil(support) * 2 + 1 taps; a pair more would be a pair of zeros.
  ResampleTaps taps{.stride = static_cast<std::int64_t>(std::ceil(support)) + 1};
  taps.ranges.resize(positions);
  taps.upper.resize(positions * static_cast<std::size_t>(taps.stride));
  taps.lower.resize(taps.upper.size());
  TapWriter writer(taps, interpolation, scale);
  for (std::size_t i = 0; i < positions; ++i) {
    const double center = (static_cast<double>(axis.first) + static_cast<double>(i) + 0.5) * step;
    taps.ranges[i] = Window{center, support}.range(axis.input);
    writer.write(i, center);
  }
  return taps;
}

// Turns the order of the positions round.
void reverse(ResampleTaps& taps) {
  std::reverse(taps.ranges.begin(), taps.ranges.end());
  for (auto* pairs : {&taps.upper, &taps.lower}) {
    for (std::size_t low = 0, high = taps.ranges.size() - 1; low < high; ++low, --high) {
      const auto at = [&](std::size_t position) {
        return pairs->begin() + static_cast<std::ptrdiff_t>(position) * taps.stride;
      };
      std::swap_ranges(at(low), at(low + 1), at(high));
    }
  }
}

// Rows of bytes that kernels may read and write a little beyond their end; reused from one image
// to the next.
class Rows {
 public:
  Rows(std::vector<std::uint8_t>& bytes, std::int64_t rows, std::int64_t row_bytes)
      : bytes_(bytes), stride_(row_bytes + kBytesBeyond) {
    // One row more: a pair of taps may have only its first in the image.
    const auto needed = static_cast<std::size_t>((rows + 1) * stride_);
    if (bytes_.size() < needed) bytes_.resize(needed);
  }

  std::uint8_t* row(std::int64_t y) { return bytes_.data() + y * stride_; }
  std::int64_t stride() const { return stride_; }

 private:
  std::vector<std::uint8_t>& bytes_;
  std::int64_t stride_;
};

struct Job {
  const ImageView& image;
  ImageSize size;
  Box part;
  ResizeOptions options;
};

ResampleTaps column_taps(const Job& job) {
  auto taps = resample_taps({job.image.size.width, job.size.width, job.part.left, job.part.width},
      job.options.interpolation);
  if (job.options.flip) reverse(taps);
  return taps;
}

ResampleTaps row_taps(const Job& job) {
  return resample_taps({job.image.size.height, job.size.height, job.part.top, job.part.height},
      job.options.interpolation);
}

// The rows of the input that any tap needs.
struct RowSpan {
  std::int64_t first;
  std::int64_t end;
};

RowSpan rows_needed(const ResampleTaps& taps) {
  RowSpan span{taps.ranges.front().start, 0};
  for (const TapRange& range : taps.ranges) {
    span.end = std::max<std::int64_t>(span.end, range.start + range.count);
  }
  return span;
}

// Filters each row along itself into `between`. The last rows of the input have nothing readable
// beyond them, so they are copied.
void filter_rows(const ResampleKernel& kernel, const Job& job, RowSpan span, Rows& between) {
  static thread_local std::vector<std::uint8_t> memory;
  const std::int64_t bytes = job.image.size.width * job.image.channels;
  const std::int64_t uncopied = (std::ssize(job.image.pixels) - kBytesBeyond) / bytes;
  const std::int64_t first_copy = std::max<std::int64_t>(span.first, uncopied);
  Rows copies(memory, std::max<std::int64_t>(span.end - first_copy, 0), bytes);
  std::vector<const std::uint8_t*> in;
  for (std::int64_t y = span.first; y < span.end; ++y) {
    in.push_back(job.image.row(y));
    if (y >= first_copy) {
      in.back() = copies.row(y - first_copy);
      std::copy_n(job.image.row(y), bytes, copies.row(y - first_copy));
    }
  }
  const ResampleTaps taps = column_taps(job);
  kernel.filter_rows(
      {in.data(), std::ssize(in), between.row(0), between.stride(), job.image.channels},
      taps.view());
}

void copy_rows(const Job& job, RowSpan span, Rows& between) {
  const std::int64_t skipped = job.part.left * job.image.channels;
  for (std::int64_t y = span.first; y < span.end; ++y) {
    std::copy_n(job.image.row(y) + skipped, job.part.width * job.image.channels,
        between.row(y - span.first));
  }
}

Image resized(const ResampleKernel& kernel, const Job& job) {
  static thread_local std::vector<std::uint8_t> memory;
  ResampleTaps taps = row_taps(job);
  const RowSpan span = rows_needed(taps);
  for (TapRange& range : taps.ranges) range.start -= static_cast<std::int32_t>(span.first);
  const std::int64_t bytes = job.part.width * job.image.channels;
  Rows between(memory, span.end - span.first, bytes);
  if (job.size.width == job.image.size.width && !job.options.flip) {
    copy_rows(job, span, between);
  } else {
    filter_rows(kernel, job, span, between);
  }
  Image out = Image::of_size({job.part.width, job.part.height}, job.image.channels);
  for (std::int64_t y = 0; y < job.part.height; ++y) {
    kernel.sum_rows({between.row(0), between.stride(), bytes, out.row(y)}, taps.view(), y);
  }
  return out;
}

void check_job(const Job& job) {
  check(job.image.channels == 1 || job.image.channels == 3,
      "resize: the image must have 1 or 3 channels: ", job.image.channels);
  check(job.part.left >= 0 && job.part.top >= 0 && job.part.width > 0 && job.part.height > 0 &&
            job.part.width <= job.size.width - job.part.left &&
            job.part.height <= job.size.height - job.part.top,
      "resize: the part leaves the image of ", job.size.width, " x ", job.size.height, ": ",
      job.part.width, " x ", job.part.height, " at ", job.part.left, ", ", job.part.top);
}

Box whole(ImageSize size) { return {0, 0, size.width, size.height}; }

}  // namespace

std::vector<const ResampleKernel*> resample_kernels() {
  std::vector<const ResampleKernel*> kernels{&plain_resample_kernel()};
  [[maybe_unused]] const auto in_use = simd::instructions_in_use();  // refuses a wrong name
#if defined(__x86_64__)
  if (in_use >= simd::InstructionSet::kAvx2) kernels.push_back(&avx2_resample_kernel());
  if (in_use == simd::InstructionSet::kAvx512 && simd::has_vbmi_and_vnni())
    kernels.push_back(&avx512_resample_kernel());
#endif
  return kernels;
}

Image resize_by(const ResampleKernel& kernel, const ImageView& image, ImageSize size,
    const Box& part, const ResizeOptions& options) {
  check_job({image, size, part, options});
  // Pillow takes the height of very tall images first, so the bytes between are others.
  if (image.size.height > 100 * image.size.width && size.height < image.size.height) {
    const ImageSize flat{image.size.width, size.height};
    const Image lower =
        resized(kernel, {image, flat, whole(flat), {.interpolation = options.interpolation}});
    return resized(kernel, {lower.view(), size, part, options});
  }
  return resized(kernel, {image, size, part, options});
}

Image resize(
    const ImageView& image, ImageSize size, const Box& part, const ResizeOptions& options) {
  static const ResampleKernel& kernel = *resample_kernels().back();
  return resize_by(kernel, image, size, part, options);
}

Image resize(const ImageView& image, ImageSize size, const ResizeOptions& options) {
  return resize(image, size, whole(size), options);
}

}  // namespace lockstep::data
