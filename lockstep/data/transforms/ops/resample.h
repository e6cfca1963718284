#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// The ways to find a colour between pixels.
enum class Interpolation { kBilinear, kBicubic };

/// Options of resize().
struct ResizeOptions {
  Interpolation interpolation = Interpolation::kBicubic;
  bool flip = false;  ///< left to right
};

/// Scales an image of one or three channels, with antialiasing, to the same bytes as Pillow's
/// Image.resize.
Image resize(const ImageView& image, ImageSize size, const ResizeOptions& options = {});

/// Does the same and gives only that part of the scaled image; nothing else is computed.
Image resize(
    const ImageView& image, ImageSize size, const Box& part, const ResizeOptions& options = {});

/// One output position of a resampling: where its taps begin and how many there are.
struct TapRange {
  std::int32_t start;
  std::int32_t count;
};

/// The taps of one axis as the kernels read them.
///
/// Weights are whole numbers in units of 2^-22, as Pillow rounds them. Kernels take taps in twos:
/// a pair packs the upper (lower) 11 bits of two weights into one word, so that a multiplication
/// of 16-bit numbers does both; weight = 2^11 upper + lower.
struct TapView {
  const TapRange* ranges;
  const std::uint32_t* upper;
  const std::uint32_t* lower;
  std::int64_t stride;  ///< pairs per position; those beyond the count are 0
  std::int64_t positions;
};

inline constexpr std::int64_t kBytesBeyond = 64;

/// Rows of pixels, each filtered along itself. The inputs can be read and the outputs written
/// kBytesBeyond bytes beyond their pixels; a row after the last of the outputs can be written, too.
struct RowList {
  const std::uint8_t* const* in;
  std::int64_t rows;
  std::uint8_t* out;
  std::int64_t stride;  ///< bytes from one output to the next
  std::int64_t channels;

  const std::uint8_t* in_row(std::int64_t y) const { return in[y < rows ? y : rows - 1]; }
  std::uint8_t* out_row(std::int64_t y) const { return out + y * stride; }
};

/// Rows below each other, `stride` bytes apart, of which a sum is taken. They can be read
/// kBytesBeyond bytes beyond their end, and so can a row after the last; `out` has `bytes` alone.
struct RowColumn {
  const std::uint8_t* in;
  std::int64_t stride;
  std::int64_t bytes;
  std::uint8_t* out;
};

/// One instruction set's way to compute weighted sums of pixels; all give the same bytes.
///
/// A byte is sum(weight * byte) in units of 2^-22, rounded to nearest and cut off at 0 and 255.
struct ResampleKernel {
  const char* name;
  void (*filter_rows)(const RowList& rows, const TapView& taps);
  void (*sum_rows)(const RowColumn& rows, const TapView& taps, std::int64_t position);
};

/// Lists the kernels that may run, the fastest last.
std::vector<const ResampleKernel*> resample_kernels();

const ResampleKernel& plain_resample_kernel();
const ResampleKernel& avx2_resample_kernel();
const ResampleKernel& avx512_resample_kernel();

/// Does what resize() does by a kernel of choice.
Image resize_by(const ResampleKernel& kernel, const ImageView& image, ImageSize size,
    const Box& part, const ResizeOptions& options);

}  // namespace lockstep::data
