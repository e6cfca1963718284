#include "lockstep/nn/conv/depthwise.h"

#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::conv {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A row for each tap, of padded(channels).
at::Tensor taps_of(const DepthwiseKernel& kernel, const at::Tensor& weight) {
  const std::int64_t channels = weight.size(0), taps = weight[0].numel();
  auto result = at::zeros({taps, kernel.padded(channels)}, on_host(at::kFloat));
  result.narrow(1, 0, channels).copy_(weight.reshape({channels, taps}).t());
  return result;
}

at::Tensor padded_bias(const DepthwiseKernel& kernel, const at::Tensor& bias) {
  auto result = at::zeros({kernel.padded(bias.numel())}, on_host(at::kFloat));
  result.narrow(0, 0, bias.numel()).copy_(bias);
  return result;
}

at::Tensor convolved(const DepthwiseKernel& kernel, const WindowShape& shape,
    const at::Tensor& images, const at::Tensor& taps, const at::Tensor& bias) {
  auto outputs = at::empty({shape.images, shape.channels, shape.out_height, shape.out_width},
      images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const DepthwiseJob job{.shape = shape,
      .images = images.const_data_ptr<float>(),
      .weights = taps.const_data_ptr<float>(),
      .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
      .outputs = outputs.mutable_data_ptr<float>()};
  in_parallel(shape.images * shape.out_height, [&](Range rows) { kernel.convolve(job, rows); });
  return outputs;
}

at::Tensor weight_gradient(const DepthwiseKernel& kernel, const WindowShape& shape,
    const at::Tensor& images, const at::Tensor& gradient, const at::Tensor& weight) {
  const std::int64_t wide = kernel.padded(shape.channels);
  auto sums = at::zeros({shape.taps(), wide}, on_host(at::kFloat));
  const DepthwiseWeightJob job{.shape = shape,
      .images = images.const_data_ptr<float>(),
      .gradient = gradient.const_data_ptr<float>(),
      .sums = sums.mutable_data_ptr<float>()};
  in_parallel(wide / kernel.lanes, [&](Range blocks) { kernel.sum_weights(job, blocks); });
  auto result = empty_gradient(weight);
  result.copy_(sums.narrow(1, 0, shape.channels).t().reshape(weight.sizes()));
  return result;
}

// Of stride 1, a convolution of the gradient by the taps in reverse order: a forward pass.
bool is_reversed_forward(const WindowShape& shape) {
  return shape.stride_height == 1 && shape.stride_width == 1 &&
         shape.padding_height < shape.kernel_height && shape.padding_width < shape.kernel_width;
}

WindowShape reversed(WindowShape shape) {
  std::swap(shape.height, shape.out_height);
  std::swap(shape.width, shape.out_width);
  shape.padding_height = shape.kernel_height - 1 - shape.padding_height;
  shape.padding_width = shape.kernel_width - 1 - shape.padding_width;
  return shape;
}

at::Tensor image_gradient(const DepthwiseKernel& kernel, const WindowShape& shape,
    const at::Tensor& images, const at::Tensor& gradient, const at::Tensor& weight,
    DepthwisePart part) {
  if (is_reversed_forward(shape)) {
    const WindowShape back = reversed(shape);
    const auto turned = weight.flip({2, 3});
    if (part == DepthwisePart::kAll && has_output_loops(back))
      return convolved(kernel, back, gradient, taps_of(kernel, turned), {});
    return at::convolution(gradient, turned, {}, {1, 1}, {back.padding_height, back.padding_width},
        {1, 1}, false, {0, 0}, shape.channels);
  }
  const auto taps = taps_of(kernel, weight);
  auto result = at::empty_like(images, images.options(), at::MemoryFormat::ChannelsLast);
  const DepthwiseImageJob job{.shape = shape,
      .weights = taps.const_data_ptr<float>(),
      .gradient = gradient.const_data_ptr<float>(),
      .images = result.mutable_data_ptr<float>()};
  in_parallel(shape.images * shape.height, [&](Range rows) { kernel.differentiate(job, rows); });
  return result;
}

class DepthwiseConvolution : public torch::autograd::Function<DepthwiseConvolution> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& images,
      const at::Tensor& weight, const std::optional<at::Tensor>& bias,
      const std::vector<std::int64_t>& stride, const std::vector<std::int64_t>& padding,
      const DepthwiseKernel* kernel, DepthwisePart part) {
    context->save_for_backward({images, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["part"] = static_cast<std::int64_t>(part);
    const WindowShape shape = window_shape_of(images, weight, stride, padding);
    if (part == DepthwisePart::kGradients || !has_output_loops(shape))
      return at::convolution(
          images, weight, bias, stride, padding, {1, 1}, false, {0, 0}, shape.channels);
    return convolved(*kernel, shape, images, taps_of(*kernel, weight),
        bias ? padded_bias(*kernel, *bias) : at::Tensor());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto stride = context->saved_data["stride"].toIntVector();
    const auto padding = context->saved_data["padding"].toIntVector();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const at::Tensor &images = saved[0], &weight = saved[1];
    if (at::GradMode::is_enabled()) {
      const auto [of_images, of_weight, of_bias] = differentiable_gradients(
          gradients[0], images, weight, has_bias, stride, padding, weight.size(0));
      return {of_images, of_weight, of_bias, {}, {}, {}, {}};
    }
    const auto& kernel =
        *reinterpret_cast<const DepthwiseKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const WindowShape shape = window_shape_of(images, weight, stride, padding);
    at::Tensor of_images, of_weight, of_bias;
    if (context->needs_input_grad(0))
      of_images = image_gradient(kernel, shape, images, gradient, weight,
          static_cast<DepthwisePart>(context->saved_data["part"].toInt()));
    if (context->needs_input_grad(1))
      of_weight = weight_gradient(kernel, shape, images, gradient, weight);
    if (has_bias && context->needs_input_grad(2)) of_bias = gradient.sum({0, 2, 3});
    return {of_images, of_weight, of_bias, {}, {}, {}, {}};
  }
};

}  // namespace

std::span<const DepthwiseKernel* const> depthwise_kernels() {
  static const DepthwiseKernel* const kBuilds[] = {
      &depthwise_plain(), &depthwise_avx2(), &depthwise_avx512()};
  return simd::usable(kBuilds);
}

at::Tensor depthwise_conv2d(
    const ConvolutionCall& call, const DepthwiseKernel& kernel, DepthwisePart part) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  return DepthwiseConvolution::apply(call.images.contiguous(at::MemoryFormat::ChannelsLast),
      call.weight, bias, pair_of(call.stride), pair_of(call.padding), &kernel, part);
}

}  // namespace lockstep::nn::conv
