#include "lockstep/nn/fused/layer_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm_compositeimplicitautograd_dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/fused/gradients_with_graph.h"
#include "lockstep/nn/fused/rows.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where the place of a parameter's gradient is.
Tensor gradient_of(const Tensor& parameter, const Tensor& sums) {
  return empty_gradient(parameter).copy_(sums);
}

class OwnLayerNorm : public torch::autograd::Function<OwnLayerNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given, const Tensor& weight,
      const std::optional<Tensor>& bias, double epsilon, const LayerNormKernel* kernel) {
    const auto input = given.contiguous();
    const std::int64_t width = weight.numel(), rows = input.numel() / width;
    auto output = at::empty_like(input);
    auto moments = at::empty({2, rows}, weight.options());
    auto* const means = moments.mutable_data_ptr<float>();
    const LayerNormJob job{.element = stored_element(input),
        .width = width,
        .inputs = input.const_data_ptr(),
        .weight = weight.const_data_ptr<float>(),
        .bias = bias ? bias->const_data_ptr<float>() : nullptr,
        .epsilon = static_cast<float>(epsilon),
        .outputs = output.mutable_data_ptr(),
        .means = means,
        .factors = means + rows};
    in_parallel(rows, [&](Range range) { kernel->forward(job, range); });
    context->save_for_backward({given, weight, bias.value_or(Tensor()), moments});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &weight = saved[1], &bias = saved[2];
    if (at::GradMode::is_enabled()) return of_libtorch(*context, saved, gradients[0]);
    const bool wants_weight = context->needs_input_grad(1);
    const bool wants_bias = bias.defined() && context->needs_input_grad(2);
    const auto& kernel =
        *reinterpret_cast<const LayerNormKernel*>(context->saved_data["kernel"].toInt());
    const auto input = saved[0].contiguous(), gradient = gradients[0].contiguous();
    const std::int64_t width = weight.numel(), rows = input.numel() / width;
    const auto* const means = saved[3].const_data_ptr<float>();
    Tensor of_input, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_input = at::empty_like(input);
    const LayerNormGradientJob job{.element = stored_element(input),
        .width = width,
        .inputs = input.const_data_ptr(),
        .weight = weight.const_data_ptr<float>(),
        .means = means,
        .factors = means + rows,
        .gradients = gradient.const_data_ptr(),
        .input_gradients = of_input.defined() ? of_input.mutable_data_ptr() : nullptr};
    // Also of frozen parameters: another kernel could give the input's gradient other bits.
    const auto sums = sums_over_rows(
        rows, 2 * width, [&](Range range, float* part) { kernel.backward(job, range, part); });
    if (wants_weight) of_weight = gradient_of(weight, sums.narrow(0, 0, width));
    if (wants_bias) of_bias = gradient_of(bias, sums.narrow(0, width, width));
    return {of_input, of_weight, of_bias, {}, {}};
  }

 private:
  static variable_list of_libtorch(
      const AutogradContext& context, const variable_list& saved, const Tensor& gradient) {
    const double epsilon = context.saved_data.at("epsilon").toDouble();
    variable_list inputs{saved[0], saved[1]};
    if (saved[2].defined()) inputs.push_back(saved[2]);
    const auto output = [&](const variable_list& all) {
      return at::compositeimplicitautograd::layer_norm_symint(all[0], all[1].sym_sizes(), all[1],
          all.size() > 2 ? std::optional(all[2]) : std::nullopt, epsilon);
    };
    auto results = gradients_with_graph(context, inputs, output, gradient);
    results.resize(5);
    return results;
  }
};

bool fits_rows(const Tensor& values, std::int64_t width) {
  return is_readable(values) && values.scalar_type() == at::kFloat && values.dim() == 1 &&
         values.size(0) == width && values.is_contiguous();
}

}  // namespace

std::span<const LayerNormKernel* const> layer_norm_kernels() {
  static const LayerNormKernel* const kBuilds[] = {
      &layer_norm_plain(), &layer_norm_avx2(), &layer_norm_avx512()};
  return simd::usable(kBuilds);
}

bool is_layer_norm_own(const LayerNormCall& call) {
  const Tensor& input = call.input;
  return has_stored_type(input) && is_readable(input) && input.dim() > 0 && input.numel() > 0 &&
         fits_rows(call.weight, input.size(-1)) &&
         (!call.bias.defined() || fits_rows(call.bias, input.size(-1)));
}

Tensor own_layer_norm(const LayerNormKernel& kernel, const LayerNormCall& call) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  return OwnLayerNorm::apply(call.input, call.weight, bias, call.epsilon, &kernel);
}

Tensor dispatched_layer_norm(const Tensor& input, c10::SymIntArrayRef normalized_shape,
    const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, double epsilon,
    bool may_use_cudnn) {
  const bool is_of_last = kernels_in_use() != Kernels::kLibTorch && normalized_shape.size() == 1 &&
                          weight && weight->defined() && weight->dim() == 1 &&
                          normalized_shape[0] == weight->sym_size(0);
  if (is_of_last) {
    const LayerNormCall call{
        .input = input, .weight = *weight, .bias = bias.value_or(Tensor()), .epsilon = epsilon};
    static const LayerNormKernel& fastest = *layer_norm_kernels().back();
    if (is_layer_norm_own(call)) return own_layer_norm(fastest, call);
  }
  return at::compositeimplicitautograd::layer_norm_symint(
      input, normalized_shape, weight, bias, epsilon, may_use_cudnn);
}

}  // namespace lockstep::nn::fused
