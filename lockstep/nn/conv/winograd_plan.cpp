#include "lockstep/nn/conv/winograd_plan.h"

#include <algorithm>

namespace lockstep::nn::conv {
namespace {

std::int64_t divided_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

// Of the second cache, which has 512 KB to 2 MB, what the tiles of a block may take.
constexpr std::int64_t kOwnFloats = 200'000;
// Of the third cache, what the tiles may take that all threads sum together.
constexpr std::int64_t kSharedFloats = 10'000'000;
// Weights beyond this are read from memory for each block of tiles.
constexpr std::int64_t kCachedWeights = 2'000'000;
// Sums of the weights' gradient beyond this are not multiplied by the number of parts.
constexpr std::int64_t kMostSumsOfAPart = 700'000;
constexpr std::int64_t kParts = 8;

}  // namespace

TileGrid tile_grid(const WinogradKernel& kernel, std::int64_t images, std::int64_t height,
    std::int64_t width, std::int64_t padding) {
  const std::int64_t out_height = height + 2 * padding - 2, out_width = width + 2 * padding - 2;
  return {.images = images,
      .height = height,
      .width = width,
      .out_height = out_height,
      .out_width = out_width,
      .padding = padding,
      .rows = divided_up(out_height, kernel.tile),
      .columns = divided_up(out_width, kernel.tile)};
}

std::int64_t tiles_of(const TileGrid& grid) { return grid.images * grid.rows * grid.columns; }

std::int64_t panels_of(const WinogradKernel& kernel, std::int64_t channels) {
  return divided_up(channels, kernel.panel);
}

std::int64_t spread(std::int64_t floats) {
  constexpr std::int64_t kLine = 16;
  return (divided_up(floats, kLine) | 1) * kLine;
}

std::int64_t tiles_at_once(const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs,
    std::int64_t outputs, int threads) {
  const std::int64_t weights = kernel.planes * inputs * outputs;
  const std::int64_t fewest = weights > kCachedWeights ? 224 : 56;
  const std::int64_t fit = kOwnFloats / (kernel.planes * (inputs + outputs));
  // As many blocks on each thread.
  const std::int64_t blocks =
      divided_up(divided_up(tiles, std::max(fit, fewest)), threads) * threads;
  return divided_up(tiles, blocks);
}

WeightGradientPlan plan_weight_gradient(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs, std::int64_t outputs) {
  constexpr std::int64_t kFewest = 32;
  const std::int64_t a_tile = kernel.planes * (inputs + outputs);
  const std::int64_t sums = kernel.planes * inputs * outputs;
  if (sums <= kMostSumsOfAPart && tiles >= kParts * kFewest)
    return {.parts = kParts, .tiles = std::max(kFewest, kOwnFloats / a_tile)};
  return {
      .parts = 1, .tiles = std::min(tiles, std::max<std::int64_t>(256, kSharedFloats / a_tile))};
}

}  // namespace lockstep::nn::conv
