#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/nn/conv/winograd_plan.h"

namespace lockstep::nn::conv {

/// Memory for planes, not initialised.
template <typename Planes>
struct Stored {
  at::Tensor memory;
  Planes planes;
};

Stored<TilePlanes> tile_planes(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t channels);

/// Rows are tiles or inputs. Of several parts the planes of each follow those of the one before.
Stored<PanelPlanes> panel_planes(
    const WinogradKernel& kernel, std::int64_t rows, std::int64_t channels, std::int64_t parts = 1);
PanelPlanes part_of(const WinogradKernel& kernel, const PanelPlanes& planes, std::int64_t part);

/// Adds some panels of all planes.
void add_panels(
    const WinogradKernel& kernel, const PanelPlanes& from, Range panels, const PanelPlanes& to);

/// Returns images in the order that kernels take, copied if need be.
at::Tensor channels_last(const at::Tensor& images);

/// Return what kernels see of tensors, images in fp32 or bf16 and weights in fp32; of const ones
/// they only read.
Pixels pixels_of(const at::Tensor& images);
Weights weights_of(const at::Tensor& weight);

/// Returns the weights by which the input's gradient is a convolution of the output's: turned by
/// half a turn, inputs and outputs exchanged.
Weights rotated(const Weights& from);

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
