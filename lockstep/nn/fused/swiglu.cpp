#include "lockstep/nn/fused/swiglu.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SwigluJob job_of(const at::Tensor& gates, const at::Tensor& values) {
  const bool is_float = gates.scalar_type() == at::kFloat;
  return {.element = is_float ? Element::kFloat : Element::kBFloat16,
      .gates = gates.const_data_ptr(),
      .values = values.const_data_ptr(),
      .outputs = nullptr,
      .gradients = nullptr,
      .gate_gradients = nullptr,
      .value_gradients = nullptr};
}

class OwnSwiglu : public torch::autograd::Function<OwnSwiglu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gates,
      const at::Tensor& values, const SwigluKernel* kernel) {
    context->save_for_backward({gates, values});
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    auto outputs = at::empty_like(gates);
    SwigluJob job = job_of(gates, values);
    job.outputs = outputs.mutable_data_ptr();
    in_parallel(gates.numel(), [&](Range range) { kernel->forward(job, range); });
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gates = saved[0], &values = saved[1];
    if (at::GradMode::is_enabled()) return of_operators(gates, values, gradients[0]);
    const auto& kernel =
        *reinterpret_cast<const SwigluKernel*>(context->saved_data["kernel"].toInt());
    const auto given = gradients[0].contiguous();
    at::Tensor of_gates, of_values;
    if (context->needs_input_grad(0)) of_gates = at::empty_like(gates);
    if (context->needs_input_grad(1)) of_values = at::empty_like(values);
    SwigluJob job = job_of(gates, values);
    job.gradients = given.const_data_ptr();
    job.gate_gradients = of_gates.defined() ? of_gates.mutable_data_ptr() : nullptr;
    job.value_gradients = of_values.defined() ? of_values.mutable_data_ptr() : nullptr;
    in_parallel(gates.numel(), [&](Range range) { kernel.backward(job, range); });
    return {of_gates, of_values, {}};
  }

 private:
  // They can be differentiated again, which silu_backward cannot.
  static variable_list of_operators(
      const at::Tensor& gates, const at::Tensor& values, const at::Tensor& gradients) {
    const auto open = at::sigmoid(gates), passed = gradients * open;
    return {passed * values * (1 + gates * (1 - open)), passed * gates, {}};
  }
};

}  // namespace

std::span<const SwigluKernel* const> swiglu_kernels() {
  static const SwigluKernel* const kBuilds[] = {&swiglu_plain(), &swiglu_avx2(), &swiglu_avx512()};
  return simd::usable(kBuilds);
}

bool is_swiglu_own(const at::Tensor& gates, const at::Tensor& values) {
  const auto type = gates.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && values.scalar_type() == type &&
         is_readable(gates) && is_readable(values) && gates.sizes() == values.sizes() &&
         gates.is_contiguous() && values.is_contiguous();
}

at::Tensor own_swiglu(
    const SwigluKernel& kernel, const at::Tensor& gates, const at::Tensor& values) {
  return OwnSwiglu::apply(gates, values, &kernel);
}

at::Tensor swiglu(const at::Tensor& gates, const at::Tensor& values) {
  if (kernels_in_use() == Kernels::kLibTorch || !is_swiglu_own(gates, values))
    return at::silu(gates) * values;
  static const SwigluKernel& fastest = *swiglu_kernels().back();
  return own_swiglu(fastest, gates, values);
}

}  // namespace lockstep::nn::fused
