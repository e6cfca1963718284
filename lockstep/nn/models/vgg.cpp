#include "lockstep/nn/models/vgg.h"

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
  append_layer("0", torch::nn::Linear(features, kHiddenUnits));
  append("classifier.1", layer_of(relu_layer));
  append_layer("2", torch::nn::Dropout(0.5));
  append_layer("3", torch::nn::Linear(kHiddenUnits, kHiddenUnits));
  append("classifier.4", layer_of(relu_layer));
  append_layer("5", torch::nn::Dropout(0.5));
  append_layer("6", torch::nn::Linear(kHiddenUnits, classes_));
}

// In torchvision's order; batch norms begin with weight 1 and bias 0, as made.
void VggImpl::initialise() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
      layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
      torch::nn::init::zeros_(layer->bias);
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::normal_(linear->weight, 0, 0.01);
      torch::nn::init::zeros_(linear->bias);
    }
  }
}

}  // namespace lockstep::nn
