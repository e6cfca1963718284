#pragma once

#include "lockstep/nn/conv/winograd_memory.h"
#include "lockstep/nn/conv/winograd_plan.h"

namespace lockstep::nn::conv {

/// One convolution: the forward pass, or the input's gradient. Each thread computes blocks of tiles
/// from the pixels to the result.
struct ForwardPass {
  const WinogradKernel& kernel;
  TileGrid grid;
  Pixels from, to;
  Weights weights;
  const float* bias;  ///< or none
  const void* zeros;  ///< as many as inputs

  void run() const;

 private:
  void compute_blocks(
      Range blocks, std::int64_t size, const PanelPlanes& transformed_weights) const;
};

/// The gradient of the weights.
///
/// Note [Sums of the weights' gradient]
/// Products are summed over all tiles. Where the sums are small, tiles are cut into parts, each
/// summed by one thread, and the parts are added in order. Where they are too large for that, all
/// threads work on the same tiles: they transform a block of them, wait for each other, and sum
/// some planes each. Either way the order of a sum depends on the shape alone.
struct WeightGradientPass {
  const WinogradKernel& kernel;
  TileGrid grid;
  Pixels images, gradient;
  Weights weights;    ///< that are written
  const void* zeros;  ///< as many as inputs, and as outputs

  void run() const;

 private:
  struct Block;
  void run_in_parts(const WeightGradientPlan& plan) const;
  void run_together(const WeightGradientPlan& plan) const;
  void sum_part(Range tiles, const Block& block, const PanelPlanes& sums) const;
  void finish(const PanelPlanes& sums, std::int64_t parts) const;
};

}  // namespace lockstep::nn::conv
