#include "lockstep/nn/fused/rotary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Its backward is the same, by the opposite angles.
class OwnRotary : public torch::autograd::Function<OwnRotary> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& heads,
      const at::Tensor& cosines, const at::Tensor& sines, bool is_back,
      const RotaryKernel* kernel) {
    context->save_for_backward({cosines, sines});
    context->saved_data["is_back"] = is_back;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    const auto input = heads.contiguous();
    auto output = at::empty_like(input);
    const bool is_float = input.scalar_type() == at::kFloat;
    const RotaryJob job{.element = is_float ? Element::kFloat : Element::kBFloat16,
        .inputs = input.const_data_ptr(),
        .outputs = output.mutable_data_ptr(),
        .cosines = cosines.const_data_ptr<float>(),
        .sines = sines.const_data_ptr<float>(),
        .length = input.size(1),
        .heads = input.size(2),
        .half = input.size(3) / 2,
        .is_back = is_back};
    in_parallel(input.size(0) * input.size(1), [&](Range places) { kernel->turn(job, places); });
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto turns = context->get_saved_variables();
    const auto* const kernel =
        reinterpret_cast<const RotaryKernel*>(context->saved_data["kernel"].toInt());
    return {OwnRotary::apply(
                gradients[0], turns[0], turns[1], !context->saved_data["is_back"].toBool(), kernel),
        {}, {}, {}, {}};
  }
};

}  // namespace

std::span<const RotaryKernel* const> rotary_kernels() {
  static const RotaryKernel* const kBuilds[] = {&rotary_plain(), &rotary_avx2(), &rotary_avx512()};
  return simd::usable(kBuilds);
}

bool is_rotary_own(const at::Tensor& heads) {
  const auto type = heads.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && heads.dim() == 4 &&
         heads.size(3) % 2 == 0 && is_readable(heads);
}

at::Tensor own_rotary(const RotaryKernel& kernel, const at::Tensor& heads, const Turns& turns) {
  return OwnRotary::apply(
      heads, turns.cosines.contiguous(), turns.sines.contiguous(), /*is_back=*/false, &kernel);
}

bool is_rotary_for_own(const at::Tensor& heads) {
  return kernels_in_use() != Kernels::kLibTorch && is_rotary_own(heads);
}

}  // namespace lockstep::nn::fused
