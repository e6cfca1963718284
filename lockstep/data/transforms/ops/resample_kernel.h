#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/ops/resample.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {

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

/// Lists the kernels that this build and this processor have, the fastest last.
std::vector<const ResampleKernel*> resample_kernels();

const ResampleKernel& plain_resample_kernel();
const ResampleKernel& avx2_resample_kernel();
const ResampleKernel& avx512_resample_kernel();

/// Does what resize() does by a kernel of choice.
Image resize_by(const ResampleKernel& kernel, const ImageView& image, ImageSize size,
    const Box& part, const ResizeOptions& options);

/// The input positions, with weights, of each output position of one axis: see TapView.
struct ResampleTaps {
  std::int64_t stride = 0;
  std::vector<TapRange> ranges = {};
  std::vector<std::uint32_t> upper = {};
  std::vector<std::uint32_t> lower = {};

  TapView view() const {
    return {ranges.data(), upper.data(), lower.data(), stride, std::ssize(ranges)};
  }
};

/// One axis of a resampling.
struct ResampleAxis {
  std::int64_t input;   ///< positions that there are
  std::int64_t output;  ///< positions that they are scaled to
  std::int64_t first;   ///< position of the output that is wanted first
  std::int64_t count;   ///< how many are
};

/// Computes the taps of an axis in the arithmetic of Pillow's Resample.c: the filter is as wide as
/// an output pixel, at least as wide as an input pixel, and cut off at the ends.
ResampleTaps resample_taps(const ResampleAxis& axis, Interpolation interpolation);

/// Turns the order of the positions round.
void reverse(ResampleTaps& taps);

}  // namespace lockstep::data
