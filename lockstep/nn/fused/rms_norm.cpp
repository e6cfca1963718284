#include "lockstep/nn/fused/rms_norm.h"

#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/fused/gradients_with_graph.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class OwnRmsNorm : public torch::autograd::Function<OwnRmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
      const at::Tensor& weight, double epsilon, const RmsNormKernel* kernel) {
    const auto input = given.contiguous();
    const std::int64_t width = weight.numel(), rows = input.numel() / width;
    auto output = at::empty_like(input), factors = at::empty({rows}, input.options());
    const RmsNormJob job{.width = width,
        .inputs = input.const_data_ptr<float>(),
        .weight = weight.const_data_ptr<float>(),
        .epsilon = static_cast<float>(epsilon),
        .outputs = output.mutable_data_ptr<float>(),
        .factors = factors.mutable_data_ptr<float>()};
    in_parallel(rows, [&](Range range) { kernel->forward(job, range); });
    context->save_for_backward({given, weight, factors});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) return of_libtorch(context, saved, gradients[0]);
    const auto& kernel =
        *reinterpret_cast<const RmsNormKernel*>(context->saved_data["kernel"].toInt());
    const auto input = saved[0].contiguous(), gradient = gradients[0].contiguous();
    const std::int64_t width = saved[1].numel(), rows = saved[2].numel();
    RmsNormGradientJob job{.rows = rows,
        .width = width,
        .inputs = input.const_data_ptr<float>(),
        .weight = saved[1].const_data_ptr<float>(),
        .factors = saved[2].const_data_ptr<float>(),
        .gradients = gradient.const_data_ptr<float>(),
        .input_gradients = nullptr,
        .weight_gradient = nullptr};
    at::Tensor of_input, of_weight;
    if (context->needs_input_grad(0)) {
      of_input = at::empty_like(input);
      job.input_gradients = of_input.mutable_data_ptr<float>();
      in_parallel(rows, [&](Range range) { kernel.input_gradients(job, range); });
    }
    if (context->needs_input_grad(1)) {
      of_weight = empty_gradient(saved[1]);
      job.weight_gradient = of_weight.mutable_data_ptr<float>();
      in_parallel((width + kRmsNormColumns - 1) / kRmsNormColumns,
          [&](Range blocks) { kernel.weight_gradient(job, blocks); });
    }
    return {of_input, of_weight, {}, {}};
  }

 private:
  static variable_list of_libtorch(
      AutogradContext* context, const variable_list& saved, const at::Tensor& gradient) {
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const auto output = [&](const variable_list& inputs) {
      return at::compositeimplicitautograd::rms_norm_symint(
          inputs[0], inputs[1].sym_sizes(), inputs[1], epsilon);
    };
    auto results = gradients_with_graph(*context, {saved[0], saved[1]}, output, gradient);
    results.resize(4);
    return results;
  }
};

}  // namespace

std::span<const RmsNormKernel* const> rms_norm_kernels() {
  static const RmsNormKernel* const kBuilds[] = {
      &rms_norm_plain(), &rms_norm_avx2(), &rms_norm_avx512()};
  return simd::usable(kBuilds);
}

bool is_rms_norm_own(const at::Tensor& input, const at::Tensor& weight) {
  return is_readable(input) && is_readable(weight) && input.dim() > 0 && weight.dim() == 1 &&
         input.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
         input.numel() > 0 && input.size(-1) == weight.size(0) && weight.is_contiguous();
}

at::Tensor own_rms_norm(const RmsNormKernel& kernel, const at::Tensor& input,
    const at::Tensor& weight, double epsilon) {
  return OwnRmsNorm::apply(input, weight, epsilon, &kernel);
}

at::Tensor dispatched_rms_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight, std::optional<double> epsilon) {
  const bool is_ours = kernels_in_use() != Kernels::kLibTorch && normalized_shape.size() == 1 &&
                       weight && weight->defined() && is_rms_norm_own(input, *weight) &&
                       normalized_shape[0] == weight->sym_size(0);
  if (!is_ours)
    return at::compositeimplicitautograd::rms_norm_symint(input, normalized_shape, weight, epsilon);
  static const RmsNormKernel& fastest = *rms_norm_kernels().back();
  return own_rms_norm(
      fastest, input, *weight, epsilon.value_or(std::numeric_limits<float>::epsilon()));
}

}  // namespace lockstep::nn::fused
