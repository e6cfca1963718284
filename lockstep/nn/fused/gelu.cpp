#include "lockstep/nn/fused/gelu.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/fused/rows.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

// As LibTorch names it.
const char* name_of(GeluForm form) { return form == GeluForm::kTanh ? "tanh" : "none"; }

// Values lie in one piece, so their places in memory are what counts.
class OwnGelu : public torch::autograd::Function<OwnGelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
      GeluForm form, const GeluKernel* kernel) {
    context->save_for_backward({input});
    context->saved_data["form"] = static_cast<std::int64_t>(form);
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    auto output = at::empty_like(input);
    const GeluJob job{.form = form,
        .element = stored_element(input),
        .inputs = input.const_data_ptr(),
        .gradients = nullptr,
        .outputs = output.mutable_data_ptr(),
        .input_gradients = nullptr};
    in_parallel(input.numel(), [&](Range range) { kernel->forward(job, range); });
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto input = context->get_saved_variables()[0];
    const auto form = static_cast<GeluForm>(context->saved_data["form"].toInt());
    // Of LibTorch's operator, so that it can be differentiated again.
    if (at::GradMode::is_enabled())
      return {at::gelu_backward(gradients[0], input, name_of(form)), {}, {}};
    const auto& kernel =
        *reinterpret_cast<const GeluKernel*>(context->saved_data["kernel"].toInt());
    auto result = at::empty_like(input);
    auto gradient = gradients[0];
    if (gradient.strides() != result.strides()) gradient = at::empty_like(input).copy_(gradient);
    const GeluJob job{.form = form,
        .element = stored_element(input),
        .inputs = input.const_data_ptr(),
        .gradients = gradient.const_data_ptr(),
        .outputs = nullptr,
        .input_gradients = result.mutable_data_ptr()};
    in_parallel(input.numel(), [&](Range range) { kernel.backward(job, range); });
    return {result, {}, {}};
  }
};

}  // namespace

std::span<const GeluKernel* const> gelu_kernels() {
  static const GeluKernel* const kBuilds[] = {&gelu_plain(), &gelu_avx2(), &gelu_avx512()};
  return simd::usable(kBuilds);
}

bool is_gelu_own(const at::Tensor& input) {
  return has_stored_type(input) && is_readable(input) && input.is_non_overlapping_and_dense();
}

at::Tensor own_gelu(const GeluKernel& kernel, GeluForm form, const at::Tensor& input) {
  return OwnGelu::apply(input, form, &kernel);
}

at::Tensor gelu(const at::Tensor& input, GeluForm form) {
  if (kernels_in_use() == Kernels::kLibTorch || !is_gelu_own(input))
    return at::gelu(input, name_of(form));
  static const GeluKernel& fastest = *gelu_kernels().back();
  return own_gelu(fastest, form, input);
}

}  // namespace lockstep::nn::fused
