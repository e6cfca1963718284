#pragma once

#include <cstdint>
#include <tuple>

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
  void initialise();

  ResNetShape shape_;
  std::int64_t classes_;
};

}  // namespace lockstep::nn
