#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {

/// Holds what each output position of one axis takes of the input's: see TapView.
struct ResampleTaps {
  std::int64_t stride = 0;
  std::vector<TapRange> ranges = {};
  std::vector<std::uint32_t> upper = {};
  std::vector<std::uint32_t> lower = {};

  TapView view() const {
    return {ranges.data(), upper.data(), lower.data(), stride, std::ssize(ranges)};
  }
};

/// Describes one axis of a resampling.
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
