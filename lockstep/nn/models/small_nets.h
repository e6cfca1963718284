#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>

#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// A 3x3 convolution with padding 1, ReLU and a pool of 2 as one layer, [N, inputs, H, W] to
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

/// The study's small net, 402,442 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0 conv 1-32 3x3 padding 1, ReLU, pool 2   3 flatten   4 linear 6272-64, 5 ReLU   6 linear
///     64-classes
///
/// Its layers: input and those numbers.
class MnistSmallImpl final : public CloneByArguments<MnistSmallImpl, ModelImpl> {
 public:
  explicit MnistSmallImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

/// The study's large net, 4,104,202 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0, 3, 6 conv 1-128-256-512 3x3 padding 1, each with ReLU and pool 2   9 flatten
///     10 linear 4608-512, 11 ReLU   12 linear 512-512, 13 ReLU   14 linear 512-classes
///
/// Its layers: input and those numbers.
class MnistLargeImpl final : public CloneByArguments<MnistLargeImpl, ModelImpl> {
 public:
  explicit MnistLargeImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

/// The net of PyTorch's DDP tutorial: linear 10-10, ReLU, linear 10-classes (5 there).
///
/// Takes [N, 10] or anything that flattens to it. Its layers: input, net1, relu, net2.
class ToyImpl final : public CloneByArguments<ToyImpl, ModelImpl> {
 public:
  explicit ToyImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

}  // namespace lockstep::nn
