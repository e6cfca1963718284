#include "lockstep/nn/conv/pointwise.h"

#include <algorithm>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/linear/linear.h"

// Note [1x1 convolutions as products]
//
// Channels last, the pixels of all images are the rows of a matrix where they lie, and the weight
// is one, too:
//
//     outputs [N H W, K] = pixels [N H W, C] x taps [K, C]^T
//     of the pixels      = gradient [N H W, K] x taps [K, C]
//     of the taps [K, C] = gradient^T x pixels
//
// Nothing is copied or reordered.

namespace lockstep::nn::conv {
namespace {

using at::Tensor;
using linear::MatrixView;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [N, C, H, W], channels-last, as [N H W, C].
MatrixView as_pixels(const Tensor& maps) { return {maps.const_data_ptr<float>(), maps.size(1), 1}; }

// [K, C, 1, 1], contiguous, as [K, C].
MatrixView as_taps(const Tensor& weight) {
  return {weight.const_data_ptr<float>(), weight.size(1), 1};
}

std::int64_t pixels_in(const Tensor& maps) { return maps.numel() / maps.size(1); }

Tensor product_outputs(const linear::GemmKernel& kernel, const Tensor& images, const Tensor& weight,
    const Tensor& bias) {
  const std::int64_t outputs = weight.size(0);
  auto result = at::empty({images.size(0), outputs, images.size(2), images.size(3)},
      images.options().memory_format(at::MemoryFormat::ChannelsLast));
  linear::multiply(kernel, {.left = as_pixels(images),
                               .right = linear::transposed(as_taps(weight)),
                               .rows = pixels_in(images),
                               .columns = outputs,
                               .inner = images.size(1),
                               .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                               .products = result.mutable_data_ptr<float>(),
                               .product_stride = outputs});
  return result;
}

Tensor product_image_gradient(const linear::GemmKernel& kernel, const Tensor& gradient,
    const Tensor& weight, const Tensor& images) {
  auto result = at::empty_like(images, images.options(), at::MemoryFormat::ChannelsLast);
  linear::multiply(kernel, {.left = as_pixels(gradient),
                               .right = as_taps(weight),
                               .rows = pixels_in(images),
                               .columns = images.size(1),
                               .inner = weight.size(0),
                               .bias = nullptr,
                               .products = result.mutable_data_ptr<float>(),
                               .product_stride = images.size(1)});
  return result;
}

Tensor product_weight_gradient(const linear::GemmKernel& kernel, const Tensor& gradient,
    const Tensor& images, const Tensor& weight) {
  auto result = empty_gradient(weight);
  linear::multiply(kernel, {.left = linear::transposed(as_pixels(gradient)),
                               .right = as_pixels(images),
                               .rows = weight.size(0),
                               .columns = weight.size(1),
                               .inner = pixels_in(images),
                               .bias = nullptr,
                               .products = result.mutable_data_ptr<float>(),
                               .product_stride = weight.size(1)});
  return result;
}

class ProductConvolution : public torch::autograd::Function<ProductConvolution> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& images, const Tensor& weight,
      const std::optional<Tensor>& bias, const linear::GemmKernel* kernel) {
    context->save_for_backward({images, weight});
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["has_bias"] = bias.has_value();
    return product_outputs(*kernel, images, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &images = saved[0], &weight = saved[1];
    const bool has_bias = context->saved_data["has_bias"].toBool();
    // Of LibTorch's operators, so that they can be differentiated again.
    if (at::GradMode::is_enabled()) {
      const auto [of_images, of_weight, of_bias] =
          at::convolution_backward(gradients[0], images, weight, at::IntArrayRef{weight.size(0)},
              {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1, {true, true, has_bias});
      return {of_images, of_weight, of_bias, {}};
    }
    const auto& kernel =
        *reinterpret_cast<const linear::GemmKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    Tensor of_images, of_weight, of_bias;
    if (context->needs_input_grad(0))
      of_images = product_image_gradient(kernel, gradient, weight, images);
    if (context->needs_input_grad(1))
      of_weight = product_weight_gradient(kernel, gradient, images, weight);
    if (has_bias && context->needs_input_grad(2)) of_bias = gradient.sum({0, 2, 3});
    return {of_images, of_weight, of_bias, {}};
  }
};

}  // namespace

bool is_product_faster(const ConvolutionShape& shape, simd::InstructionSet ours) {
  if (ours != simd::InstructionSet::kAvx2) return false;
  constexpr std::int64_t kFewestChannels = 16;
  return std::min(shape.inputs, shape.outputs) >= kFewestChannels;
}

Tensor product_conv2d(const ConvolutionCall& call, const linear::GemmKernel& kernel) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias.contiguous()) : std::nullopt;
  return ProductConvolution::apply(call.images.contiguous(at::MemoryFormat::ChannelsLast),
      call.weight.contiguous(), bias, &kernel);
}

}  // namespace lockstep::nn::conv
