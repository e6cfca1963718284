#include "lockstep/nn/conv/convolution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d_native.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/core/processor.h"
#include "lockstep/nn/conv/pointwise.h"
#include "lockstep/nn/conv/winograd.h"

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

// Of the first or the only value, as LibTorch takes a list.
std::int64_t value_at(at::IntArrayRef list, std::size_t place) {
  return list.size() == 1 ? list[0] : list[place];
}

bool are_both(at::IntArrayRef list, std::int64_t value) {
  return value_at(list, 0) == value && value_at(list, 1) == value;
}

bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == type &&
         !tensor.is_neg() && !tensor._is_zerotensor();
}

bool are_types_covered(const ConvolutionCall& call) {
  const auto type = call.images.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && is_plain(call.images, type) &&
         is_plain(call.weight, type) && (!call.bias.defined() || is_plain(call.bias, type));
}

// LibTorch's rule for the order of the output.
bool is_channels_last(const ConvolutionCall& call) {
  return call.images.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
         call.weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

bool are_sizes_covered(const ConvolutionCall& call) {
  const at::Tensor &images = call.images, &weight = call.weight;
  if (images.dim() != 4 || weight.dim() != 4 || images.numel() == 0) return false;
  const std::int64_t margin = 2 * value_at(call.padding, 0);
  return weight.size(0) > 0 && weight.size(2) == 3 && weight.size(3) == 3 &&
         weight.size(1) == images.size(1) && images.size(2) + margin > 2 &&
         images.size(3) + margin > 2;
}

bool is_bias_covered(const ConvolutionCall& call) {
  if (!call.bias.defined()) return true;
  return call.bias.dim() == 1 && call.bias.size(0) == call.weight.size(0);
}

at::Tensor by_libtorch(const ConvolutionCall& call) {
  return at::native::conv2d_symint(call.images, call.weight, call.bias,
      c10::fromIntArrayRefSlow(call.stride), c10::fromIntArrayRefSlow(call.padding),
      c10::fromIntArrayRefSlow(call.dilation), call.groups);
}

bool is_pointwise(const ConvolutionCall& call) {
  return call.groups == 1 && are_both(call.stride, 1) && are_both(call.padding, 0) &&
         is_plain(call.images, at::kFloat) && call.images.dim() == 4 && call.weight.dim() == 4 &&
         call.weight.size(2) == 1 && call.weight.size(3) == 1 && is_channels_last(call);
}

// See Note [1x1 convolutions of few images].
at::Tensor by_onednn(const ConvolutionCall& call) {
  const std::int64_t parts =
      is_pointwise(call) ? parts_of_image(call.images.size(0), call.images.size(2)) : 1;
  if (parts == 1) return by_libtorch(call);
  const auto cut = cut_rows(call.images, parts);
  return join_rows(by_libtorch({.images = cut,
                       .weight = call.weight,
                       .bias = call.bias,
                       .stride = call.stride,
                       .padding = call.padding,
                       .dilation = call.dilation,
                       .groups = call.groups}),
      parts);
}

class WinogradConvolution : public torch::autograd::Function<WinogradConvolution> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
      const at::Tensor& weight, const std::optional<at::Tensor>& bias, std::int64_t padding,
      const WinogradKernel* kernel) {
    const auto pixels = images.contiguous(at::MemoryFormat::ChannelsLast);
    context->save_for_backward({pixels, weight});
    context->saved_data["padding"] = padding;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["has_bias"] = bias.has_value();
    return winograd_forward(*kernel, pixels, weight, bias.value_or(at::Tensor()), padding);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw Error("conv2d: our convolution has no second derivative; LibTorch's has");
    }
    const auto saved = context->get_saved_variables();
    const auto padding = context->saved_data["padding"].toInt();
    const auto& kernel =
        *reinterpret_cast<const WinogradKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor images, weight, bias;
    if (context->needs_input_grad(0))
      images = winograd_input_gradient(kernel, gradient, saved[1], padding);
    if (context->needs_input_grad(1))
      weight = winograd_weight_gradient(kernel, saved[0], gradient, saved[1], padding);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      bias = gradient.sum({0, 2, 3});
    return {images, weight, bias, {}, {}};
  }
};

}  // namespace

const WinogradBuild& fastest_winograd() {
  static const WinogradBuilds kFound = winograd_builds();
  return *kFound.builds[kFound.count - 1];
}

bool is_covered(const ConvolutionCall& call) {
  const bool is_usual = call.groups == 1 && are_both(call.stride, 1) && are_both(call.dilation, 1);
  const bool is_padded = are_both(call.padding, 0) || are_both(call.padding, 1);
  return is_usual && is_padded && are_types_covered(call) && are_sizes_covered(call) &&
         is_bias_covered(call) && is_channels_last(call);
}

at::Tensor own_conv2d(const ConvolutionCall& call, const WinogradKernel& kernel) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  return WinogradConvolution::apply(
      call.images, call.weight, bias, value_at(call.padding, 0), &kernel);
}

at::Tensor conv2d(const ConvolutionCall& call, Kernels who) {
  if (who == Kernels::kLibTorch) return by_libtorch(call);
  if (!is_covered(call)) return by_onednn(call);
  const std::int64_t margin = 2 * value_at(call.padding, 0) - 2;
  const ConvolutionShape shape{call.images.size(0), call.images.size(1), call.weight.size(0),
      call.images.size(2) + margin, call.images.size(3) + margin};
  const WinogradBuild& build = fastest_winograd();
  if (who == Kernels::kAuto && !is_own_faster(shape, isa_of(build), multiplier_of(call.images)))
    return by_libtorch(call);
  return own_conv2d(call, fitting_tile(shape) == 2 ? build.small : build.large);
}

}  // namespace lockstep::nn::conv
