#include "lockstep/nn/conv/winograd_pass.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::conv {
namespace {

template <typename Body>
void over_ranges(std::int64_t count, const Body& body) {
  in_parallel(count, [&](std::int64_t begin, std::int64_t end) { body(Range{begin, end}); });
}

}  // namespace

void ForwardPass::run() const {
  const auto transformed = panel_planes(kernel, from.channels, to.channels);
  over_ranges(panels_of(kernel, to.channels),
      [&](Range panels) { kernel.transform_weights(weights, panels, transformed.planes); });
  const std::int64_t tiles = tiles_of(grid);
  const std::int64_t size =
      tiles_at_once(kernel, tiles, from.channels, to.channels, at::get_num_threads());
  over_ranges((tiles + size - 1) / size,
      [&](Range blocks) { compute_blocks(blocks, size, transformed.planes); });
}

void ForwardPass::compute_blocks(
    Range blocks, std::int64_t size, const PanelPlanes& transformed_weights) const {
  const auto tiles = tile_planes(kernel, size, from.channels);
  const auto results = panel_planes(kernel, size, to.channels);
  const std::int64_t panels = panels_of(kernel, to.channels);
  for (std::int64_t index = blocks.begin; index < blocks.end; ++index) {
    const TileBlock block{grid, index * size, zeros};
    const std::int64_t count = std::min(size, tiles_of(grid) - block.first);
    kernel.transform_input(block, from, {0, count}, tiles.planes);
    const Products products{.tiles = tiles.planes,
        .weights = transformed_weights,
        .results = results.planes,
        .tile_count = count,
        .inputs = from.channels,
        .panels = panels,
        .adds = false};
    kernel.multiply(products, {0, kernel.planes * panels});
    kernel.transform_output(block, results.planes, bias, {0, count}, to);
  }
}

}  // namespace lockstep::nn::conv
