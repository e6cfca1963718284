#pragma once

#include <memory>
#include <optional>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::nn {

/// A linear layer with the weight and bias of torch::nn::Linear that asks for one operator,
/// linear(), for which our kernels stand in. LibTorch's module calls addmm(), for which none does,
/// or multiplies by its transposed weight.
class RowLinearImpl final : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;

  /// Turns [..., inputs] into [..., outputs].
  torch::Tensor forward(const torch::Tensor& input);

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(RowLinear);

/// Returns whether a module is such a layer: it does nothing but linear().
bool is_row_linear(const torch::nn::Module& module);

}  // namespace lockstep::nn
