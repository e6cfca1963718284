#pragma once

#include <cstdint>

#include "lockstep/nn/conv/winograd_kernel.h"

namespace lockstep::nn::conv {

/// Cuts a convolution's output into tiles.
TileGrid tile_grid(const WinogradKernel& kernel, std::int64_t images, std::int64_t height,
    std::int64_t width, std::int64_t padding);

std::int64_t tiles_of(const TileGrid& grid);
std::int64_t panels_of(const WinogradKernel& kernel, std::int64_t channels);

/// Rounds up to an odd number of cache lines: planes that are whole pages apart would all fall
/// into the same few sets of a cache.
std::int64_t spread(std::int64_t floats);

/// Returns how many tiles are transformed, multiplied and transformed back before the next, in the
/// forward pass or for the input's gradient: so few that they stay in the second cache, but enough
/// to pay for reading the weights, which do not. No result depends on it.
std::int64_t tiles_at_once(const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs,
    std::int64_t outputs, int threads);

/// The order in which the weights' gradient is summed (see Note [Sums of the weights' gradient]).
struct WeightGradientPlan {
  std::int64_t parts;  ///< of the tiles, that have sums of their own
  std::int64_t tiles;  ///< that are transformed before they are summed
};
WeightGradientPlan plan_weight_gradient(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs, std::int64_t outputs);

}  // namespace lockstep::nn::conv
