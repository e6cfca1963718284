#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>

#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Says how the images enter: 7x7 stride 2 and a pool of 3 stride 2 for ImageNet's 224 pixels, 3x3
/// stride 1 and no pool for CIFAR's 32.
enum class ResNetStem { kImageNet, kCifar };

/// Says which block the four groups are made of.
enum class ResNetBlock { kBasic, kBottleneck };

/// Is what one ResNet differs in from another.
struct ResNetShape {
  const char* name;
  ResNetStem stem;
  ResNetBlock block;
  std::array<std::int64_t, 4> blocks;  ///< in layer1 .. layer4
};

inline constexpr ResNetShape kResNet18{
    "resnet18", ResNetStem::kImageNet, ResNetBlock::kBasic, {2, 2, 2, 2}};
inline constexpr ResNetShape kResNet18Cifar{
    "resnet18-cifar", ResNetStem::kCifar, ResNetBlock::kBasic, {2, 2, 2, 2}};
inline constexpr ResNetShape kResNet34{
    "resnet34", ResNetStem::kImageNet, ResNetBlock::kBasic, {3, 4, 6, 3}};
inline constexpr ResNetShape kResNet50{
    "resnet50", ResNetStem::kImageNet, ResNetBlock::kBottleneck, {3, 4, 6, 3}};

/// Is torchvision's ResNet: its names, its order, its initialisation, the stride of a bottleneck in
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
