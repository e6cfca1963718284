#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/winograd_kernel.h"

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

}  // namespace lockstep::nn::conv
