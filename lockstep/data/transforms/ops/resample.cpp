#include "lockstep/data/transforms/ops/resample.h"

#include <algorithm>
#include <array>

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {
namespace {

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
