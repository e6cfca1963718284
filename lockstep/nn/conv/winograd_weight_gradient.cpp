#include <algorithm>

#include "lockstep/nn/conv/winograd_pass.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::conv {

/// Some tiles, transformed.
struct WeightGradientPass::Block {
  const WeightGradientPass& pass;
  std::int64_t size;
  Stored<TilePlanes> tiles;
  Stored<PanelPlanes> factors;

  Block(const WeightGradientPass& of, std::int64_t most)
      : pass(of),
        size(most),
        tiles(tile_planes(of.kernel, most, of.images.channels)),
        factors(panel_planes(of.kernel, most, of.gradient.channels)) {}

  // A range within the block that begins with tile `first`.
  void transform(std::int64_t first, Range some) const {
    const TileBlock block{pass.grid, first, pass.zeros};
    pass.kernel.transform_input(block, pass.images, some, tiles.planes);
    pass.kernel.transform_gradient(block, pass.gradient, some, factors.planes);
  }

  Products products(std::int64_t count, const PanelPlanes& sums, bool adds) const {
    return {.tiles = tiles.planes,
        .weights = sums,
        .results = factors.planes,
        .tile_count = count,
        .inputs = pass.images.channels,
        .panels = panels_of(pass.kernel, pass.gradient.channels),
        .adds = adds};
  }
};

void WeightGradientPass::run() const {
  const auto plan =
      plan_weight_gradient(kernel, tiles_of(grid), images.channels, gradient.channels);
  plan.parts > 1 ? run_in_parts(plan) : run_together(plan);
}

void WeightGradientPass::run_together(const WeightGradientPlan& plan) const {
  const auto sums = panel_planes(kernel, images.channels, gradient.channels);
  const Block block(*this, plan.tiles);
  for (std::int64_t first = 0; first < tiles_of(grid); first += plan.tiles) {
    const std::int64_t count = std::min(plan.tiles, tiles_of(grid) - first);
    in_parallel(count, [&](std::int64_t begin, std::int64_t end) {
      block.transform(first, {begin, end});
    });
    const Products products = block.products(count, sums.planes, first > 0);
    in_parallel(kernel.planes * products.panels, [&](std::int64_t begin, std::int64_t end) {
      kernel.accumulate(products, {begin, end});
    });
  }
  finish(sums.planes, 1);
}

void WeightGradientPass::sum_part(Range tiles, const Block& block, const PanelPlanes& sums) const {
  for (std::int64_t first = tiles.begin; first < tiles.end; first += block.size) {
    const std::int64_t count = std::min(block.size, tiles.end - first);
    block.transform(first, {0, count});
    const Products products = block.products(count, sums, first > tiles.begin);
    kernel.accumulate(products, {0, kernel.planes * products.panels});
  }
}

void WeightGradientPass::run_in_parts(const WeightGradientPlan& plan) const {
  // The planes of all parts, one part after the other.
  const std::int64_t all = tiles_of(grid);
  const auto sums = panel_planes(kernel, images.channels, gradient.channels, plan.parts);
  in_parallel(plan.parts, [&](std::int64_t begin, std::int64_t end) {
    const Block block(*this, plan.tiles);
    for (std::int64_t part = begin; part < end; ++part)
      sum_part({all * part / plan.parts, all * (part + 1) / plan.parts}, block,
          part_of(kernel, sums.planes, part));
  });
  finish(sums.planes, plan.parts);
}

void WeightGradientPass::finish(const PanelPlanes& sums, std::int64_t parts) const {
  in_parallel(panels_of(kernel, gradient.channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 1; part < parts; ++part)
      add_panels(kernel, part_of(kernel, sums, part), {begin, end}, sums);
    kernel.finish_weights(sums, {begin, end}, weights);
  });
}

}  // namespace lockstep::nn::conv
