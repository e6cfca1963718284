#include "lockstep/nn/fused/batch_norm_relu.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/fused/batch_norm_passes.h"

namespace lockstep::nn::fused {
namespace {

bool is_layer_value(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == 4 &&
         (type == at::kFloat || type == at::kBFloat16) && tensor.numel() > tensor.size(1) &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor._fw_grad(0).defined();
}

bool is_value_a_channel(const at::Tensor& tensor, std::int64_t channels) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.dim() == 1 && tensor.size(0) == channels && tensor.is_contiguous() &&
         !tensor._fw_grad(0).defined();
}

bool have_running_statistics(const BatchNormArguments& given) {
  return given.running_mean.defined() || given.running_var.defined();
}

/// The tensors that a backward needs, in the order in which they are saved.
struct SavedForBackward {
  at::Tensor input, weight;
  BatchNormAffine affine;
  at::Tensor mean;    ///< double [C]
  at::Tensor output;  ///< only if there was an addend

  torch::autograd::variable_list list() const {
    return {input, weight, affine.scale, affine.shift, affine.inverse_deviation, mean, output};
  }
  static SavedForBackward of(const torch::autograd::variable_list& saved) {
    return {saved[0], saved[1], {saved[2], saved[3], saved[4]}, saved[5], saved[6]};
  }
};

// Positive where ReLU lets a value pass.
at::Tensor before_relu(const SavedForBackward& saved) {
  if (saved.output.defined()) return saved.output.detach();
  const auto along = [](const at::Tensor& values) { return values.view({1, -1, 1, 1}); };
  return saved.input.detach() * along(saved.affine.scale) + along(saved.affine.shift);
}

// Of LibTorch's operators, so that they can be differentiated again; in float, which all know.
BatchNormGradients differentiable_gradients(
    const SavedForBackward& saved, const at::Tensor& gradient, bool rectifies, double eps) {
  const auto type = saved.input.scalar_type();
  auto passed = gradient.to(at::kFloat);
  if (rectifies) passed = at::threshold_backward(passed, before_relu(saved).to(at::kFloat), 0);
  const auto [input, weight, bias] =
      at::native_batch_norm_backward(passed, saved.input.to(at::kFloat), saved.weight, {}, {},
          saved.mean.to(at::kFloat), saved.affine.inverse_deviation, true, eps, {true, true, true});
  return {input.to(type), weight, bias, saved.output.defined() ? passed.to(type) : at::Tensor()};
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
    const SavedForBackward saved{
        input, weight, affine, statistics.mean, addend ? output : at::Tensor()};
    context->save_for_backward(saved.list());
    context->saved_data["rectifies"] = rectifies;
    context->saved_data["eps"] = eps;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = SavedForBackward::of(context->get_saved_variables());
    const bool rectifies = context->saved_data["rectifies"].toBool();
    const auto found = at::GradMode::is_enabled()
                           ? differentiable_gradients(saved, gradients[0], rectifies,
                                 context->saved_data["eps"].toDouble())
                           : own_gradients(*context, saved, gradients[0], rectifies);
    return {found.input, found.weight, found.bias, found.addend, {}, {}, {}, {}, {}, {}};
  }

 private:
  static BatchNormGradients own_gradients(torch::autograd::AutogradContext& context,
      const SavedForBackward& saved, const at::Tensor& gradient, bool rectifies) {
    const auto& kernel =
        *reinterpret_cast<const BatchNormKernel*>(context.saved_data["kernel"].toInt());
    const BatchNormPasses passes{kernel, saved.input};
    return passes.gradients({.rectifies = rectifies,
        .gradient = gradient,
        .weight = saved.weight,
        .affine = saved.affine,
        .mean = saved.mean,
        .output = saved.output});
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
