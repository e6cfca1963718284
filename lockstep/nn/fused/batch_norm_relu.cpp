#include "lockstep/nn/fused/batch_norm_relu.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/batch_norm_passes.h"

namespace lockstep::nn::fused {
namespace {

bool is_layer_value(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == 4 &&
         (type == at::kFloat || type == at::kBFloat16) && tensor.numel() > tensor.size(1) &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

bool is_value_a_channel(const at::Tensor& tensor, std::int64_t channels) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.dim() == 1 && tensor.size(0) == channels && tensor.is_contiguous();
}

bool have_running_statistics(const BatchNormArguments& given) {
  return given.running_mean.defined() || given.running_var.defined();
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
      const at::Tensor& weight, const at::Tensor& bias, const std::optional<at::Tensor>& addend,
      const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
      double momentum, double eps, bool rectifies, const BatchNormKernel* kernel) {
    const BatchNormPasses passes{*kernel, input};
    const auto statistics = passes.statistics();
    if (running_mean) passes.update(*running_mean, *running_var, statistics, momentum);
    const auto affine = affine_of(statistics, weight, bias, eps);
    auto output = passes.normalised(affine, addend.value_or(at::Tensor()), rectifies);
    context->save_for_backward({input, weight, affine.scale, affine.shift, statistics.mean,
        affine.inverse_deviation, addend ? output : at::Tensor()});
    context->saved_data["rectifies"] = rectifies;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled())
      throw Error("batch_norm: the fused kernels have no second derivative; LibTorch's has");
    const auto saved = context->get_saved_variables();
    const auto& kernel =
        *reinterpret_cast<const BatchNormKernel*>(context->saved_data["kernel"].toInt());
    const BatchNormPasses passes{kernel, saved[0]};
    const auto found = passes.gradients({.rectifies = context->saved_data["rectifies"].toBool(),
        .gradient = gradients[0],
        .weight = saved[1],
        .affine = {saved[2], saved[3], saved[5]},
        .mean = saved[4],
        .output = saved[6]});
    return {found.input, found.weight, found.bias, found.addend, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool is_batch_norm_fused(const BatchNormArguments& given, const at::Tensor& addend) {
  if (!given.input.defined() || !is_layer_value(given.input)) return false;
  const std::int64_t channels = given.input.size(1);
  const bool has_statistics = have_running_statistics(given);
  const bool fits =
      !addend.defined() || (is_layer_value(addend) && addend.sizes() == given.input.sizes() &&
                               addend.scalar_type() == given.input.scalar_type());
  return fits && is_value_a_channel(given.weight, channels) &&
         is_value_a_channel(given.bias, channels) &&
         (!has_statistics || (is_value_a_channel(given.running_mean, channels) &&
                                 is_value_a_channel(given.running_var, channels)));
}

at::Tensor fused_batch_norm(
    const BatchNormKernel& kernel, const BatchNormArguments& given, const AfterBatchNorm& after) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return FusedBatchNorm::apply(given.input, given.weight, given.bias, optional(after.addend),
      optional(given.running_mean), optional(given.running_var), given.momentum, given.eps,
      after.rectifies, &kernel);
}

}  // namespace lockstep::nn::fused
