#include "lockstep/nn/models/row_linear.h"

#include <ATen/ops/linear.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

// LibTorch takes an undefined bias for one.
std::optional<at::Tensor> given(const at::Tensor& bias) {
  return bias.defined() ? std::optional(bias) : std::nullopt;
}

}  // namespace

torch::Tensor RowLinearImpl::forward(const torch::Tensor& input) {
  return at::linear(input, weight, given(bias));
}

std::shared_ptr<torch::nn::Module> RowLinearImpl::clone(
    const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<RowLinearImpl>(options);
  copy_state(*this, *copy, device);
  return copy;
}

bool is_row_linear(const torch::nn::Module& module) {
  return dynamic_cast<const RowLinearImpl*>(&module) != nullptr;
}

}  // namespace lockstep::nn
