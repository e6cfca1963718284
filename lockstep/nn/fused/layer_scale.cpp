#include "lockstep/nn/fused/layer_scale.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/fused/rows.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Values lie in one piece, the scaled dimension last, so their places in memory are what counts.
class OwnLayerScale : public torch::autograd::Function<OwnLayerScale> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& scale,
      const Tensor& residual, bool is_of_maps, const LayerScaleKernel* kernel) {
    context->save_for_backward({input, scale});
    context->saved_data["is_of_maps"] = is_of_maps;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    auto output = at::empty_like(residual);
    const LayerScaleJob job{.element = stored_element(input),
        .width = scale.numel(),
        .inputs = input.const_data_ptr(),
        .scale = scale.const_data_ptr<float>(),
        .residuals = residual.const_data_ptr<float>(),
        .outputs = output.mutable_data_ptr<float>()};
    in_parallel(input.numel() / job.width, [&](Range rows) { kernel->forward(job, rows); });
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) return of_operators(*context, saved, gradients[0]);
    auto results = of_kernel(*context, saved[0], saved[1], gradients[0]);
    if (context->needs_input_grad(2)) results[2] = gradients[0];
    return results;
  }

 private:
  static variable_list of_kernel(const AutogradContext& context, const Tensor& input,
      const Tensor& scale, const Tensor& given) {
    const bool wants_input = context.needs_input_grad(0), wants_scale = context.needs_input_grad(1);
    Tensor of_input, of_scale, gradient = given;
    if (!wants_input && !wants_scale) return {{}, {}, {}, {}, {}};
    if (gradient.strides() != input.strides())
      gradient = at::empty_like(input, gradient.options()).copy_(gradient);
    const auto& kernel =
        *reinterpret_cast<const LayerScaleKernel*>(context.saved_data.at("kernel").toInt());
    if (wants_input) of_input = at::empty_like(input);
    const LayerScaleGradientJob job{.element = stored_element(input),
        .width = scale.numel(),
        .inputs = input.const_data_ptr(),
        .scale = scale.const_data_ptr<float>(),
        .gradients = gradient.const_data_ptr<float>(),
        .input_gradients = wants_input ? of_input.mutable_data_ptr() : nullptr};
    const std::int64_t rows = input.numel() / job.width;
    if (wants_scale)
      of_scale = empty_gradient(scale).copy_(sums_over_rows(
          rows, job.width, [&](Range range, float* sums) { kernel.backward(job, range, sums); }));
    else
      in_parallel(rows, [&](Range range) { kernel.backward(job, range, nullptr); });
    return {of_input, of_scale, {}, {}, {}};
  }

  // They can be differentiated again.
  static variable_list of_operators(
      const AutogradContext& context, const variable_list& saved, const Tensor& gradient) {
    const Tensor &input = saved[0], &scale = saved[1];
    const bool is_of_maps = context.saved_data.at("is_of_maps").toBool();
    const auto spread = is_of_maps ? scale.view({-1, 1, 1}) : scale;
    const auto products = (gradient * input).transpose(is_of_maps ? 1 : -1, -1);
    return {(gradient * spread).to(input.scalar_type()),
        products.reshape({-1, scale.numel()}).sum(0), gradient, {}, {}};
  }
};

// Where no dimension is 1, strides that agree are one order.
bool lies_in_rows(const Tensor& values, std::int64_t dimension) {
  return is_readable(values) && values.numel() > 0 && values.is_non_overlapping_and_dense() &&
         values.stride(dimension) == 1;
}

}  // namespace

std::span<const LayerScaleKernel* const> layer_scale_kernels() {
  static const LayerScaleKernel* const kBuilds[] = {
      &layer_scale_plain(), &layer_scale_avx2(), &layer_scale_avx512()};
  return simd::usable(kBuilds);
}

bool is_layer_scale_own(const LayerScaleCall& call) {
  const Tensor &input = call.input, &scale = call.scale, &residual = call.residual;
  if (!has_stored_type(input) || scale.scalar_type() != at::kFloat ||
      residual.scalar_type() != at::kFloat || !is_readable(scale) || scale.dim() != 1 ||
      !scale.is_contiguous() || input.dim() == 0)
    return false;
  const std::int64_t dimension = call.is_of_maps ? 1 : input.dim() - 1;
  return (!call.is_of_maps || input.dim() == 4) && input.sizes() == residual.sizes() &&
         input.strides() == residual.strides() && input.size(dimension) == scale.size(0) &&
         lies_in_rows(input, dimension) && lies_in_rows(residual, dimension);
}

Tensor own_layer_scale(const LayerScaleKernel& kernel, const LayerScaleCall& call) {
  return OwnLayerScale::apply(call.input, call.scale, call.residual, call.is_of_maps, &kernel);
}

}  // namespace lockstep::nn::fused
