#include "lockstep/nn/conv/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/conv/pointwise.h"
#include "lockstep/nn/conv/single_pixel.h"
#include "lockstep/nn/conv/winograd.h"
#include "lockstep/simd/processor.h"

namespace lockstep::nn::conv {
namespace {

Isa isa_of(const WinogradBuild& build) {
  if (&build == &winograd_avx512()) return Isa::kAvx512;
  return &build == &winograd_avx2() ? Isa::kAvx2 : Isa::kPlain;
}

Multiplier multiplier_of(const at::Tensor& images) {
  static const Multiplier kOfBf16 = bf16_multiplier(processor_features());
  return images.scalar_type() == at::kFloat ? Multiplier::kFloat : kOfBf16;
}

bool is_pointwise(const ConvolutionCall& call) {
  return is_usual(call) && are_both(call.stride, 1) && are_both(call.padding, 0) &&
         call.images.scalar_type() == at::kFloat && call.weight.size(2) == 1 &&
         call.weight.size(3) == 1;
}

// See Note [1x1 convolutions of few images].
at::Tensor conv2d_of_onednn(const ConvolutionCall& call) {
  const std::int64_t parts =
      is_pointwise(call) ? parts_of_image(call.images.size(0), call.images.size(2)) : 1;
  if (parts == 1) return conv2d_of_libtorch(call);
  const auto cut = cut_rows(call.images, parts);
  return join_rows(conv2d_of_libtorch({.images = cut,
                       .weight = call.weight,
                       .bias = call.bias,
                       .stride = call.stride,
                       .padding = call.padding,
                       .dilation = call.dilation,
                       .groups = call.groups}),
      parts);
}

// Of LibTorch's operators, so that they can be differentiated again.
torch::autograd::variable_list differentiable_gradients(const at::Tensor& images,
    const at::Tensor& weight, bool has_bias, std::int64_t padding, const at::Tensor& gradient) {
  const auto [of_images, of_weight, of_bias] =
      at::convolution_backward(gradient, images, weight, at::IntArrayRef{weight.size(0)}, {1, 1},
          {padding, padding}, {1, 1}, false, {0, 0}, 1, {true, true, has_bias});
  return {of_images, of_weight, of_bias, {}, {}};
}

class WinogradConvolution : public torch::autograd::Function<WinogradConvolution> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
      const at::Tensor& weight, const std::optional<at::Tensor>& bias, std::int64_t padding,
      const WinogradKernel* kernel) {
    context->save_for_backward({images, weight});
    context->saved_data["padding"] = padding;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["has_bias"] = bias.has_value();
    return winograd_forward(*kernel, images, weight, bias.value_or(at::Tensor()), padding);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto padding = context->saved_data["padding"].toInt();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (at::GradMode::is_enabled())
      return differentiable_gradients(saved[0], saved[1], has_bias, padding, gradients[0]);
    const auto& kernel =
        *reinterpret_cast<const WinogradKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor images, weight, bias;
    if (context->needs_input_grad(0))
      images = winograd_input_gradient(kernel, gradient, saved[1], padding);
    if (context->needs_input_grad(1))
      weight = winograd_weight_gradient(kernel, saved[0], gradient, saved[1], padding);
    if (has_bias && context->needs_input_grad(2)) bias = gradient.sum({0, 2, 3});
    return {images, weight, bias, {}, {}};
  }
};

}  // namespace

const WinogradBuild& fastest_winograd() {
  static const WinogradBuilds kFound = winograd_builds();
  return *kFound.builds[kFound.count - 1];
}

bool is_covered(const ConvolutionCall& call) {
  const bool is_padded = are_both(call.padding, 0) || are_both(call.padding, 1);
  return is_padded && are_both(call.stride, 1) && call.weight.dim() == 4 &&
         call.weight.size(2) == 3 && call.weight.size(3) == 3 && is_usual(call);
}

at::Tensor own_conv2d(const ConvolutionCall& call, const WinogradKernel& kernel) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  return WinogradConvolution::apply(
      call.images, call.weight, bias, axis_of(call, 0).padding, &kernel);
}

at::Tensor conv2d(const ConvolutionCall& call, Kernels who) {
  if (who == Kernels::kLibTorch) return conv2d_of_libtorch(call);
  if (is_single_pixel(call)) return single_pixel_conv2d(call);
  if (!is_covered(call)) return conv2d_of_onednn(call);
  const ConvolutionShape shape{call.images.size(0), call.images.size(1), call.weight.size(0),
      axis_of(call, 0).outputs(), axis_of(call, 1).outputs()};
  const WinogradBuild& build = fastest_winograd();
  if (who == Kernels::kAuto && !is_own_faster(shape, isa_of(build), multiplier_of(call.images)))
    return conv2d_of_libtorch(call);
  return own_conv2d(call, fitting_tile(shape) == 2 ? build.small : build.large);
}

}  // namespace lockstep::nn::conv
