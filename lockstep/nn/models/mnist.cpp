#include "lockstep/nn/models/mnist.h"

#include <ATen/ops/max_pool2d.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/conv_relu_pool.h"

namespace lockstep::nn {
namespace {

torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(inputs, outputs, 3).padding(1));
  // oneDNN computes channels-last convolutions without reordering their weights at every step.
  if (inputs > 1) layer->weight.set_data(layer->weight.contiguous(at::MemoryFormat::ChannelsLast));
  return layer;
}

torch::Tensor first_block(const torch::Tensor& images, const torch::nn::Conv2d& layer) {
  check(
      images.dim() == 4 && images.size(1) == 1 && images.size(2) == 28 && images.size(3) == 28,
      "mnist net: takes images of [N, 1, 28, 28], not ",
      images.sizes());
  return fused::conv_relu_pool(images, layer->weight, layer->bias);
}

torch::Tensor block(const torch::Tensor& images, torch::nn::Conv2d& layer) {
  return at::max_pool2d(layer(images).relu_(), {2, 2});
}

}  // namespace

MnistSmallImpl::MnistSmallImpl(std::int64_t classes)
    : conv_(register_module("0", convolution(1, 32))),
      hidden_(register_module("4", torch::nn::Linear(6272, 64))),
      head_(register_module("6", torch::nn::Linear(64, classes))) {}

torch::Tensor MnistSmallImpl::forward(torch::Tensor images) {
  const auto features = first_block(images, conv_).flatten(1);
  return head_(hidden_(features).relu_());
}

MnistLargeImpl::MnistLargeImpl(std::int64_t classes)
    : conv1_(register_module("0", convolution(1, 128))),
      conv2_(register_module("3", convolution(128, 256))),
      conv3_(register_module("6", convolution(256, 512))),
      hidden1_(register_module("10", torch::nn::Linear(4608, 512))),
      hidden2_(register_module("12", torch::nn::Linear(512, 512))),
      head_(register_module("14", torch::nn::Linear(512, classes))) {}

torch::Tensor MnistLargeImpl::forward(torch::Tensor images) {
  auto maps = first_block(images, conv1_).contiguous(at::MemoryFormat::ChannelsLast);
  maps = block(block(maps, conv2_), conv3_);
  return head_(hidden2_(hidden1_(maps.flatten(1)).relu_()).relu_());
}

}  // namespace lockstep::nn
