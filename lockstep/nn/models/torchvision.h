#pragma once

#include <cstdint>
#include <tuple>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// torchvision's VGG: its names, its order, its initialisation, dropout 0.5.
///
/// Takes [N, 3, H, W] of at least 32 pixels a side, made for 224, fastest channels-last; others are
/// converted once, at the start. Its layers: input, features.N, avgpool, flatten, classifier.N,
/// numbered as torchvision's.
class VggImpl final : public CloneByArguments<VggImpl, ModelImpl> {
 public:
  VggImpl(const VggShape& shape, std::int64_t classes);
  std::tuple<VggShape, std::int64_t> arguments() const { return {shape_, classes_}; }

 private:
  void append_features();
  void append_classifier();
  void initialise();

  VggShape shape_;
  std::int64_t classes_;
};

/// Makes a convolution without bias whose padding keeps height and width at stride 1.
torch::nn::Conv2d convolution(
    std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride);

/// The block of ResNet-18 and -34: two 3x3 convolutions and a shortcut.
///
/// [N, inputs, H, W] to [N, width, H/stride, W/stride]. Names are torchvision's: conv1, bn1, conv2,
/// bn2, and downsample.0 and .1 where the shapes differ.
class BasicBlockImpl final : public CloneByArguments<BasicBlockImpl> {
 public:
  static constexpr std::int64_t kExpansion = 1;  ///< Channels that go out for each of the width.

  BasicBlockImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride);
  torch::Tensor forward(torch::Tensor input);
  std::tuple<std::int64_t, std::int64_t, std::int64_t> arguments() const;

 private:
  // Constructed in torchvision's order: the same seed gives the same weights.
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};
TORCH_MODULE(BasicBlock);

/// The block of ResNet-50: 1x1 to `width` channels, 3x3 with the stride, 1x1 to 4 x width.
///
/// [N, inputs, H, W] to [N, 4 x width, H/stride, W/stride]. Names are torchvision's: conv1 .. bn3,
/// and downsample.0 and .1 where the shapes differ.
class BottleneckImpl final : public CloneByArguments<BottleneckImpl> {
 public:
  static constexpr std::int64_t kExpansion = 4;  ///< Channels that go out for each of the width.

  BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride);
  torch::Tensor forward(torch::Tensor input);
  std::tuple<std::int64_t, std::int64_t, std::int64_t> arguments() const;

 private:
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  torch::nn::BatchNorm2d bn3_;
};
TORCH_MODULE(Bottleneck);

/// torchvision's ResNet: its names, its order, its initialisation, the stride of a bottleneck in
/// the 3x3 convolution (v1.5).
///
/// Takes [N, 3, H, W], fastest channels-last; others are converted once, at the start. Its layers:
/// input, conv1, bn1, relu, maxpool (not for CIFAR), layer1.0 .. layer4.N, avgpool, flatten, fc.
class ResNetImpl final : public CloneByArguments<ResNetImpl, ModelImpl> {
 public:
  ResNetImpl(const ResNetShape& shape, std::int64_t classes);
  std::tuple<ResNetShape, std::int64_t> arguments() const { return {shape_, classes_}; }

 private:
  void append_stem();
  template <typename Block>
  void append_groups();
  template <typename Block>
  void append_group(std::size_t group, std::int64_t& channels);
  void initialise();

  ResNetShape shape_;
  std::int64_t classes_;
};

}  // namespace lockstep::nn
