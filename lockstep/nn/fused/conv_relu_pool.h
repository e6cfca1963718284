#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/conv_relu_pool_kernel.h"

namespace lockstep::nn::fused {

/// Computes max_pool2d(relu(conv2d(images, weight, bias, padding 1)), 2) with a backward pass.
///
/// images [N, C, H, W], weight [K, C, 3, 3], bias [K]; returns [N, K, H/2, W/2]. Where it can (see
/// is_conv_relu_pool_fused()) one kernel writes only the pooled values and a byte for each that
/// names the winner; elsewhere it is exactly the chain of ATen's operations, channels-last.
///
/// fp32 agrees with ATen's chain within 1e-5 of the values' size. Under bf16 autocast the kernel
/// keeps weights and sums in fp32 and rounds once, at the end, so it is nearer to fp32 than ATen.
/// A NaN in a window comes out as NaN and gets the window's gradient, as in ATen.
at::Tensor conv_relu_pool(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias);

/// Returns whether conv_relu_pool() takes the kernel now: on the CPU, one input channel, no
/// gradient wanted for the images, 2x2 pixels or more; fp32, or fp32 and bf16 images under bf16
/// autocast.
bool is_conv_relu_pool_fused(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias);

/// Returns the kernels that may run, the fastest last.
std::span<const ConvReluPoolKernel* const> conv_relu_pool_kernels();

/// Computes the same by ATen's operations, on any device and type.
at::Tensor conv_relu_pool_by_aten(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep::nn::fused
