#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

namespace lockstep::nn {

/// Is a 3x3 convolution with padding 1, ReLU and a pool of 2 as one layer, [N, inputs, H, W] to
/// [N, outputs, H/2, W/2]; with one input channel one fused kernel.
///
/// A Conv2d, so that `weight` and `bias` are its own and Python's names come out.
class MnistBlockImpl final : public torch::nn::Conv2dImpl {
 public:
  MnistBlockImpl(std::int64_t inputs, std::int64_t outputs);

  torch::Tensor forward(const torch::Tensor& images);

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(MnistBlock);

}  // namespace lockstep::nn
