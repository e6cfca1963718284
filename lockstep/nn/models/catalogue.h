#pragma once

// The nets that make_model() knows. Without LibTorch: the command lists them before it loads any.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::nn {

/// How the images enter: 7x7 stride 2 and a pool of 3 stride 2 for ImageNet's 224 pixels, 3x3
/// stride 1 and no pool for CIFAR's 32.
enum class ResNetStem { kImageNet, kCifar };

/// Which block the four groups are made of.
enum class ResNetBlock { kBasic, kBottleneck };

/// How one ResNet differs from another.
struct ResNetShape {
  const char* name;
  ResNetStem stem;
  ResNetBlock block;
  std::array<std::int64_t, 4> blocks;  ///< in layer1 .. layer4
};

/// How one VGG differs from another.
struct VggShape {
  const char* name;
  std::array<std::int64_t, 5> convolutions;  ///< in each group, which a pool of 2 ends
  bool batch_norm;                           ///< after each convolution
};

inline constexpr ResNetShape kResNets[] = {
    {"resnet18", ResNetStem::kImageNet, ResNetBlock::kBasic, {2, 2, 2, 2}},
    {"resnet18-cifar", ResNetStem::kCifar, ResNetBlock::kBasic, {2, 2, 2, 2}},
    {"resnet34", ResNetStem::kImageNet, ResNetBlock::kBasic, {3, 4, 6, 3}},
    {"resnet50", ResNetStem::kImageNet, ResNetBlock::kBottleneck, {3, 4, 6, 3}},
};

inline constexpr VggShape kVggs[] = {
    {"vgg11", {1, 1, 2, 2, 2}, false},
    {"vgg11-bn", {1, 1, 2, 2, 2}, true},
    {"vgg13", {2, 2, 2, 2, 2}, false},
    {"vgg13-bn", {2, 2, 2, 2, 2}, true},
    {"vgg16", {2, 2, 3, 3, 3}, false},
    {"vgg16-bn", {2, 2, 3, 3, 3}, true},
    {"vgg19", {2, 2, 4, 4, 4}, false},
    {"vgg19-bn", {2, 2, 4, 4, 4}, true},
};

/// The nets of a single shape, whose classes stand in this order in model.cpp.
inline constexpr const char* kSmallNets[] = {"toy", "mnist-small", "mnist-large"};

/// Returns the names that make_model() knows.
inline std::vector<std::string> model_names() {
  std::vector<std::string> names(std::begin(kSmallNets), std::end(kSmallNets));
  for (const ResNetShape& shape : kResNets) names.emplace_back(shape.name);
  for (const VggShape& shape : kVggs) names.emplace_back(shape.name);
  return names;
}

}  // namespace lockstep::nn
