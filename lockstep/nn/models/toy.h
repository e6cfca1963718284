#pragma once

#include <cstdint>

#include <torch/nn/modules/linear.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Is the net of PyTorch's DDP tutorial: linear 10-10, ReLU, linear 10-classes (5 there).
class ToyImpl final : public ModelImpl {
 public:
  explicit ToyImpl(std::int64_t classes);

  /// Takes [N, 10] or anything that flattens to it.
  torch::Tensor forward(torch::Tensor features) override;

 private:
  torch::nn::Linear net1_, net2_;
};

}  // namespace lockstep::nn
