#pragma once

#include <cstdint>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Is the study's small net, 402,442 parameters with 10 classes.
///
///     0 conv 1-32 3x3 padding 1, ReLU, pool 2   3 flatten   4 linear 6272-64, ReLU   6 linear
///     64-classes
class MnistSmallImpl final : public ModelImpl {
 public:
  explicit MnistSmallImpl(std::int64_t classes);

  /// Takes [N, 1, 28, 28].
  torch::Tensor forward(torch::Tensor images) override;

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Linear hidden_, head_;
};

/// Is the study's large net, 4,104,202 parameters with 10 classes.
///
///     0, 3, 6 conv 1-128-256-512 3x3 padding 1, each with ReLU and pool 2   9 flatten
///     10 linear 4608-512, ReLU   12 linear 512-512, ReLU   14 linear 512-classes
class MnistLargeImpl final : public ModelImpl {
 public:
  explicit MnistLargeImpl(std::int64_t classes);

  /// Takes [N, 1, 28, 28].
  torch::Tensor forward(torch::Tensor images) override;

 private:
  torch::nn::Conv2d conv1_, conv2_, conv3_;
  torch::nn::Linear hidden1_, hidden2_, head_;
};

}  // namespace lockstep::nn
