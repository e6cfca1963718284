#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/winograd_kernel.h"

/// 3x3 convolutions of stride 1 in Winograd's form (see Note [Winograd]). Images and weights are
/// in fp32 or bf16, the sums between them in fp32; results have the type of what they are like.
///
/// Images are [N, C, H, W] and weights [K, C, 3, 3]; images in any other order than channels-last
/// are copied into it. Results have the same bits in every run and for any number of threads.
namespace lockstep::nn::conv {

/// Returns the builds that may run, the fastest last.
std::span<const WinogradBuild* const> winograd_builds();

/// Returns the output, [N, K, H + 2 * padding - 2, W + 2 * padding - 2], channels-last. An
/// undefined bias is none. Padding is 0, 1 or 2.
at::Tensor winograd_forward(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& weight, const at::Tensor& bias, std::int64_t padding);

/// Returns the gradient of the images from that of the output; padding is 0 or 1.
at::Tensor winograd_input_gradient(const WinogradKernel& kernel, const at::Tensor& gradient,
    const at::Tensor& weight, std::int64_t padding);

/// Returns the gradient of the weight, in the weight's layout.
at::Tensor winograd_weight_gradient(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& gradient, const at::Tensor& weight, std::int64_t padding);

/// The order in which the weights' gradient is summed (see Note [Sums of the weights' gradient]).
struct WeightGradientPlan {
  std::int64_t parts;  ///< of the tiles, that have sums of their own
  std::int64_t tiles;  ///< that are transformed before they are summed
};
WeightGradientPlan plan_weight_gradient(
    const WinogradKernel& kernel, std::int64_t tiles, std::int64_t inputs, std::int64_t outputs);

}  // namespace lockstep::nn::conv
