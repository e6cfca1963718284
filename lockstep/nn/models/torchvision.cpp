#include "lockstep/nn/models/torchvision.h"

#include <algorithm>
#include <string>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/enum.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/nn/fused/batch_norm_relu.h"
#include "lockstep/nn/models/row_linear.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kFirstWidth = 64, kLargestWidth = 512;
constexpr std::int64_t kPooledSide = 7;
constexpr std::int64_t kHiddenUnits = 4096;

// In width and height.
torch::Tensor halved(torch::Tensor maps) { return at::max_pool2d(maps, 2, 2); }

torch::Tensor pooled_to_seven(torch::Tensor maps) {
  return at::adaptive_avg_pool2d(maps, {kPooledSide, kPooledSide});
}

torch::nn::Conv2d convolution_of(std::int64_t inputs, std::int64_t outputs) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, 3).padding(1));
}

void draw_weight(torch::nn::Conv2dImpl& layer) {
  torch::nn::init::kaiming_normal_(layer.weight, 0, torch::kFanOut, torch::kReLU);
  layer.weight.set_data(layer.weight.contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace

VggImpl::VggImpl(const VggShape& shape, std::int64_t classes) : shape_(shape), classes_(classes) {
  append("input", colour_image_layer(shape.name));
  append_features();
  append("avgpool", layer_of(pooled_to_seven));
  append("flatten", layer_of(flatten_layer));
  append_classifier();
  initialise();
}

// ReLU and pools count, too: the numbers are those of torchvision's Sequential.
void VggImpl::append_features() {
  auto features = register_module("features", torch::nn::Sequential());
  std::int64_t number = 0, channels = 3, width = kFirstWidth;
  const auto name = [&] { return "features." + std::to_string(number++); };
  const auto append_feature = [&](const auto& layer) {
    features->push_back(std::to_string(number), torch::nn::AnyModule(layer));
    append(name(), layer);
  };
  for (const std::int64_t convolutions : shape_.convolutions) {
    for (std::int64_t i = 0; i < convolutions; ++i, channels = width) {
      append_feature(convolution_of(channels, width));
      if (shape_.batch_norm) append_feature(torch::nn::BatchNorm2d(width));
      append(name(), layer_of(relu_layer));
    }
    append(name(), layer_of(halved));
    width = std::min(2 * width, kLargestWidth);
  }
}

void VggImpl::append_classifier() {
  auto classifier = register_module("classifier", torch::nn::Sequential());
  const auto append_layer = [&](const std::string& number, const auto& layer) {
    classifier->push_back(number, torch::nn::AnyModule(layer));
    append("classifier." + number, layer);
  };
  const std::int64_t features = kLargestWidth * kPooledSide * kPooledSide;
  append_layer("0", RowLinear(features, kHiddenUnits));
  append("classifier.1", layer_of(relu_layer));
  append_layer("2", torch::nn::Dropout(0.5));
  append_layer("3", RowLinear(kHiddenUnits, kHiddenUnits));
  append("classifier.4", layer_of(relu_layer));
  append_layer("5", torch::nn::Dropout(0.5));
  append_layer("6", RowLinear(kHiddenUnits, classes_));
}

// In torchvision's order; batch norms begin with weight 1 and bias 0, as made.
void VggImpl::initialise() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2d>()) {
      draw_weight(*layer);
      torch::nn::init::zeros_(layer->bias);
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::normal_(linear->weight, 0, 0.01);
      torch::nn::init::zeros_(linear->bias);
    }
  }
}

namespace {

constexpr std::int64_t kStemChannels = 64;

// Without bias; its padding keeps height and width at stride 1.
torch::nn::Conv2d convolution(
    std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));
}

torch::nn::Sequential downsample(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  if (stride == 1 && inputs == outputs) return nullptr;
  return torch::nn::Sequential(
      convolution(inputs, outputs, 1, stride), torch::nn::BatchNorm2d(outputs));
}

torch::Tensor shortcut(torch::nn::Sequential& downsample, const torch::Tensor& input) {
  return downsample.is_empty() ? input : downsample->forward(input);
}

torch::Tensor max_pool(torch::Tensor maps) { return at::max_pool2d(maps, 3, 2, 1); }

torch::Tensor average_pool(torch::Tensor maps) { return at::adaptive_avg_pool2d(maps, {1, 1}); }

}  // namespace

/// The block of ResNet-18 and -34: two 3x3 convolutions and a shortcut.
///
/// [N, inputs, H, W] to [N, width, H/stride, W/stride]. Names are torchvision's: conv1, bn1, conv2,
/// bn2, and downsample.0 and .1 where the shapes differ.
class BasicBlockImpl final : public CloneByArguments<BasicBlockImpl> {
 public:
  static constexpr std::int64_t kExpansion = 1;  ///< Channels that go out for each of the width.

  BasicBlockImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
      : downsample_(downsample(inputs, width, stride)) {
    conv1_ = register_module("conv1", convolution(inputs, width, 3, stride));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", convolution(width, width, 3, 1));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(width));
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  torch::Tensor forward(torch::Tensor input) {
    const auto maps = fused::batch_norm_relu(bn1_, conv1_(input));
    const auto sums = conv2_(maps);
    return fused::batch_norm_relu(bn2_, sums, shortcut(downsample_, input));
  }

  std::tuple<std::int64_t, std::int64_t, std::int64_t> arguments() const {
    const auto& options = conv1_->options;
    return {options.in_channels(), options.out_channels(), options.stride()->front()};
  }

 private:
  // Constructed first, as in torchvision: the same seed gives the same weights. So below.
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
};

/// The block of ResNet-50: 1x1 to `width` channels, 3x3 with the stride, 1x1 to 4 x width.
///
/// [N, inputs, H, W] to [N, 4 x width, H/stride, W/stride]. Names are torchvision's: conv1 .. bn3,
/// and downsample.0 and .1 where the shapes differ.
class BottleneckImpl final : public CloneByArguments<BottleneckImpl> {
 public:
  static constexpr std::int64_t kExpansion = 4;  ///< Channels that go out for each of the width.

  BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
      : downsample_(downsample(inputs, width * kExpansion, stride)) {
    conv1_ = register_module("conv1", convolution(inputs, width, 1, 1));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width));
    conv2_ = register_module("conv2", convolution(width, width, 3, stride));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(width));
    conv3_ = register_module("conv3", convolution(width, width * kExpansion, 1, 1));
    bn3_ = register_module("bn3", torch::nn::BatchNorm2d(width * kExpansion));
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  torch::Tensor forward(torch::Tensor input) {
    auto maps = fused::batch_norm_relu(bn1_, conv1_(input));
    maps = fused::batch_norm_relu(bn2_, conv2_(maps));
    maps = conv3_(maps);
    return fused::batch_norm_relu(bn3_, maps, shortcut(downsample_, input));
  }

  std::tuple<std::int64_t, std::int64_t, std::int64_t> arguments() const {
    const auto& options = conv1_->options;
    const auto stride = conv2_->options.stride()->front();
    return {options.in_channels(), options.out_channels(), stride};
  }

 private:
  torch::nn::Sequential downsample_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

ResNetImpl::ResNetImpl(const ResNetShape& shape, std::int64_t classes)
    : shape_(shape), classes_(classes) {
  append_stem();
  if (shape.block == ResNetBlock::kBasic) {
    append_groups<BasicBlockImpl>();
  } else {
    append_groups<BottleneckImpl>();
  }
  initialise();
}

void ResNetImpl::append_stem() {
  const bool is_cifar = shape_.stem == ResNetStem::kCifar;
  append("input", colour_image_layer(shape_.name));
  append_module("conv1", convolution(3, kStemChannels, is_cifar ? 3 : 7, is_cifar ? 1 : 2));
  append_module("bn1", torch::nn::BatchNorm2d(kStemChannels));
  append("relu", layer_of(relu_layer));
  if (!is_cifar) append("maxpool", layer_of(max_pool));
}

template <typename Block>
void ResNetImpl::append_groups() {
  std::int64_t channels = kStemChannels;
  for (std::size_t group = 0; group < shape_.blocks.size(); ++group) {
    const std::string name = "layer" + std::to_string(group + 1);
    const std::int64_t width = kStemChannels << group;
    auto blocks = register_module(name, torch::nn::Sequential());
    for (std::int64_t i = 0; i < shape_.blocks[group]; ++i) {
      const std::int64_t stride = i == 0 && group > 0 ? 2 : 1;
      auto block = std::make_shared<Block>(channels, width, stride);
      blocks->push_back(block);
      append(name + "." + std::to_string(i), block);
      channels = width * Block::kExpansion;
    }
  }
  append("avgpool", layer_of(average_pool));
  append("flatten", layer_of(flatten_layer));
  append_module("fc", RowLinear(channels, classes_));
}

// Batch norms begin with weight 1 and bias 0 and the linear layer with PyTorch's default, as made.
void ResNetImpl::initialise() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2d>()) draw_weight(*layer);
  }
}

}  // namespace lockstep::nn
