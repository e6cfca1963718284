#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/window_shape.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::conv {

/// The arguments of a call of conv2d.
struct ConvolutionCall {
  const at::Tensor& images;  ///< [N, C, H, W], or [C, H, W]
  const at::Tensor& weight;  ///< [K, C / groups, h, w]
  const at::Tensor& bias;    ///< [K], or undefined
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;
};

/// The kinds of calls that are told apart.
///
/// All but kOther have at least one image, fp32 or bf16 on the CPU, one group (kDepthwise: one a
/// channel), no dilation, an output that is channels-last by LibTorch's rule, and sizes that
/// LibTorch does not refuse.
enum class ConvolutionKind {
  kSinglePixel,  ///< the output has one pixel; any kernel, stride and padding
  kWinograd,     ///< 3x3, stride 1, padding 0 or 1
  kPointwise,    ///< 1x1, stride 1, no padding, in fp32
  kStrided,      ///< any kernel and padding, in one direction at least a stride above 1, in fp32
  kDepthwise,    ///< a kernel for each channel, in fp32, of images that are channels-last
  kOther,        ///< LibTorch's
};
ConvolutionKind kind_of(const ConvolutionCall& call);

/// Computes it by `who`. Unless that is LibTorch, convolutions to a single pixel are matrix
/// products, kWinograd is computed in Winograd's form, kPointwise by our products (pointwise.h) or,
/// of few images, by oneDNN within LibTorch, kStrided by products of windows (windows.h); of
/// kDepthwise the gradients are ours. A backward that is to be differentiated again is LibTorch's.
at::Tensor conv2d(const ConvolutionCall& call, Kernels who);

/// LibTorch's conv2d on the CPU, computed by kernels_in_use().
at::Tensor dispatched_conv2d(const at::Tensor& images, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, std::int64_t groups);

/// Returns a list of LibTorch's, of one value or two, as two.
std::vector<std::int64_t> pair_of(at::IntArrayRef list);

/// Returns how a weight [K, *, h, w] slides over images; stride and padding have two values.
WindowShape window_shape_of(const at::Tensor& images, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding);

/// Returns the gradients of images, weight and bias, if there is one, of LibTorch's operators, so
/// that they can be differentiated again.
std::tuple<at::Tensor, at::Tensor, at::Tensor> differentiable_gradients(const at::Tensor& gradient,
    const at::Tensor& images, const at::Tensor& weight, bool has_bias, at::IntArrayRef stride,
    at::IntArrayRef padding, std::int64_t groups = 1);

/// Computes a call of kSinglePixel as one matrix product, as often differentiable as LibTorch's:
/// its output is [N, K, 1, 1]. See Note [Convolutions to a single pixel].
at::Tensor single_pixel_conv2d(const ConvolutionCall& call);

/// Returns the number of parts to cut the rows of each image into, so that there are at least 16
/// parts in all; 1 if there are 16 images already, or if no such number divides the height.
std::int64_t parts_of_image(std::int64_t images, std::int64_t height);

/// Views channels-last images [N, C, H, W] as [N * parts, C, H / parts, W].
at::Tensor cut_rows(const at::Tensor& images, std::int64_t parts);

/// Views the parts as images again.
at::Tensor join_rows(const at::Tensor& parts_of_images, std::int64_t parts);

/// A convolution as the choice sees it: what it multiplies.
struct ConvolutionShape {
  std::int64_t images, inputs, outputs;
  std::int64_t out_height, out_width;
};

/// The way oneDNN multiplies: floats, or bf16 by AMX's tiles, by AVX-512's own instructions, or by
/// converting to floats.
enum class Multiplier { kFloat, kAmx, kAvx512Bf16, kConverted };

/// Returns what oneDNN has for bf16 on a processor of these simd::processor_features().
Multiplier bf16_multiplier(const std::string& features);

/// Returns which of our tiles, 2 or 4 pixels wide, needs fewer products.
std::int64_t fitting_tile(const ConvolutionShape& shape);

/// Returns whether our convolution is faster than oneDNN's, forward and backward together, as
/// measured on layers of 4 to 512 channels and 1 to 56 pixels (benchmarks/README.md).
///
/// The number of threads does not matter, so that a run can go on with another one: neither the
/// choice nor the results of our convolutions depend on it.
bool is_own_faster(const ConvolutionShape& shape, simd::InstructionSet ours, Multiplier theirs);

}  // namespace lockstep::nn::conv
