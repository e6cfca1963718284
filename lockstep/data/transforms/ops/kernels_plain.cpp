#include "lockstep/data/transforms/ops/affine_loops.h"
#include "lockstep/data/transforms/ops/resample.h"

namespace lockstep::data {
namespace {

constexpr std::int32_t kHalf = 1 << 21;

std::uint8_t rounded(std::int32_t sum) {
  const std::int32_t level = (sum + kHalf) >> 22;
  return static_cast<std::uint8_t>(level < 0 ? 0 : level > 255 ? 255 : level);
}

// The weight of the tap within the position's pairs.
std::int32_t weight_of(const TapView& taps, std::int64_t position, std::int32_t tap) {
  const std::int64_t pair = position * taps.stride + tap / 2;
  const int shift = tap % 2 * 16;
  const auto upper = static_cast<std::int16_t>(taps.upper[pair] >> shift);
  const auto lower = static_cast<std::int16_t>(taps.lower[pair] >> shift);
  return upper * 2048 + lower;
}

void filter_row(
    const std::uint8_t* in, const TapView& taps, std::int64_t channels, std::uint8_t* out) {
  for (std::int64_t position = 0; position < taps.positions; ++position) {
    const TapRange range = taps.ranges[position];
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      std::int32_t sum = 0;
      for (std::int32_t tap = 0; tap < range.count; ++tap) {
        sum += weight_of(taps, position, tap) * in[(range.start + tap) * channels + channel];
      }
      out[position * channels + channel] = rounded(sum);
    }
  }
}

void filter_rows(const RowList& rows, const TapView& taps) {
  for (std::int64_t y = 0; y < rows.rows; ++y)
    filter_row(rows.in[y], taps, rows.channels, rows.out_row(y));
}

void sum_rows(const RowColumn& rows, const TapView& taps, std::int64_t position) {
  const TapRange range = taps.ranges[position];
  const std::uint8_t* first = rows.in + range.start * rows.stride;
  for (std::int64_t i = 0; i < rows.bytes; ++i) {
    std::int32_t sum = 0;
    for (std::int32_t tap = 0; tap < range.count; ++tap) {
      sum += weight_of(taps, position, tap) * first[tap * rows.stride + i];
    }
    rows.out[i] = rounded(sum);
  }
}

}  // namespace

const ResampleKernel& plain_resample_kernel() {
  static constexpr ResampleKernel kKernel{"plain", filter_rows, sum_rows};
  return kKernel;
}

const AffineKernel& plain_affine_kernel() {
  static constexpr AffineKernel kKernel{"plain", map_row<bilinear>, map_row<bicubic>};
  return kKernel;
}

}  // namespace lockstep::data
