#pragma once

// The nets that make_model() knows, the losses and the tasks. Without LibTorch: the command lists
// them before it loads any.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The tasks that a net may have.
enum class TaskKind {
  kClassification,
  kTokens,
  kRegression,
  kLabels,
  kSegmentation,
  kReconstruction,
  kProgram
};
constexpr auto names_of(TaskKind) {
  using Kind = TaskKind;
  return std::array{EnumName{Kind::kClassification, "classification"},
      EnumName{Kind::kTokens, "tokens"}, EnumName{Kind::kRegression, "regression"},
      EnumName{Kind::kLabels, "labels"}, EnumName{Kind::kSegmentation, "segmentation"},
      EnumName{Kind::kReconstruction, "reconstruction"}, EnumName{Kind::kProgram, "program"}};
}

namespace nn {

/// The layers where images enter: 7x7 stride 2 and a pool of 3 stride 2 for ImageNet's 224 pixels,
/// 3x3 stride 1 and no pool for CIFAR's 32.
enum class ResNetStem { kImageNet, kCifar };

/// The block that the four groups are made of.
enum class ResNetBlock { kBasic, kBottleneck };

/// The properties that tell one ResNet from another.
struct ResNetShape {
  const char* name;
  ResNetStem stem;
  ResNetBlock block;
  std::array<std::int64_t, 4> blocks;  ///< in layer1 .. layer4
};

/// The properties that tell one VGG from another.
struct VggShape {
  const char* name;
  std::array<std::int64_t, 5> convolutions;  ///< in each group, which a pool of 2 ends
  bool batch_norm;                           ///< after each convolution
};

/// The properties that tell one GPT-2 from another.
struct Gpt2Shape {
  const char* name;
  std::int64_t layers, heads, width;
  std::int64_t context = 1024;  ///< tokens of a sequence at most
};

/// The properties that tell one Llama from another.
struct LlamaShape {
  const char* name;
  std::int64_t layers, heads;
  std::int64_t key_heads;  ///< each of which several heads share
  std::int64_t width, hidden, context;
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

/// OpenAI's, and that of nanoGPT's recipe for CPUs.
inline constexpr Gpt2Shape kGpt2s[] = {
    {"gpt2-nano", 4, 4, 128, 256},
    {"gpt2", 12, 12, 768},
    {"gpt2-medium", 24, 16, 1024},
    {"gpt2-large", 36, 20, 1280},
    {"gpt2-xl", 48, 25, 1600},
};

/// Those of llama2.c, without its vocabularies.
inline constexpr LlamaShape kLlamas[] = {
    {"llama-260k", 5, 8, 4, 64, 172, 512},
    {"llama-15m", 6, 6, 6, 288, 768, 256},
    {"llama-110m", 12, 12, 12, 768, 2048, 1024},
};

/// The nets of a single shape, whose classes stand in this order in model.cpp.
inline constexpr const char* kSmallNets[] = {"toy", "mnist-small", "mnist-large"};

/// A net's needs of images and of memory, known before it is made.
struct NetNeeds {
  std::int64_t least_side = 1;  ///< of an image, in pixels: less vanishes in the pools
  std::int64_t features = 0;    ///< that its last layer takes, for each class
  std::int64_t channels = 0;    ///< of an image; 0: it takes none, or is not known
  std::int64_t context = 0;     ///< tokens of a sequence at most; 0: it is no language model
};

/// Returns the needs of a net; those of no net for an unknown name.
inline NetNeeds net_needs(const std::string& name) {
  constexpr NetNeeds kSmall[] = {
      {.features = 10}, {.features = 64, .channels = 1}, {.features = 512, .channels = 1}};
  static_assert(std::size(kSmall) == std::size(kSmallNets));
  for (std::size_t i = 0; i < std::size(kSmallNets); ++i)
    if (name == kSmallNets[i]) return kSmall[i];
  for (const ResNetShape& shape : kResNets)
    if (name == shape.name)
      return {.features = shape.block == ResNetBlock::kBasic ? 512 : 2048, .channels = 3};
  for (const VggShape& shape : kVggs)
    if (name == shape.name)
      return {.least_side = std::int64_t{1} << shape.convolutions.size(),
          .features = 4096,
          .channels = 3};
  for (const Gpt2Shape& shape : kGpt2s)
    if (name == shape.name) return {.features = shape.width, .context = shape.context};
  for (const LlamaShape& shape : kLlamas)
    if (name == shape.name) return {.features = shape.width, .context = shape.context};
  return {};
}

/// Returns the names that make_model() knows.
inline std::vector<std::string> model_names() {
  std::vector<std::string> names(std::begin(kSmallNets), std::end(kSmallNets));
  for (const ResNetShape& shape : kResNets) names.emplace_back(shape.name);
  for (const VggShape& shape : kVggs) names.emplace_back(shape.name);
  for (const Gpt2Shape& shape : kGpt2s) names.emplace_back(shape.name);
  for (const LlamaShape& shape : kLlamas) names.emplace_back(shape.name);
  return names;
}

/// Returns whether a model is a file of Python's torch.export.
inline bool is_exported(const std::string& model) { return model.ends_with(".pt2"); }

inline constexpr const char* kCrossEntropy = "cross-entropy";
inline constexpr const char* kMeanSquaredError = "mse";  ///< of scores and one-hot labels

/// Returns the names of the losses that need no plugin.
inline std::vector<std::string> loss_names() { return {kCrossEntropy, kMeanSquaredError}; }

}  // namespace nn
}  // namespace lockstep
