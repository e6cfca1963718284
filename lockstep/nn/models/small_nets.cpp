#include "lockstep/nn/models/small_nets.h"

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/conv_relu_pool.h"
#include "lockstep/nn/models/clone.h"

namespace lockstep::nn {
namespace {

torch::Tensor checked_images(torch::Tensor images) {
  check(images.dim() == 4 && images.size(1) == 1 && images.size(2) == 28 && images.size(3) == 28,
      "mnist net: takes images of [N, 1, 28, 28], not ", images.sizes());
  return images;
}

torch::Tensor checked_rows(torch::Tensor features) {
  check(features.dim() >= 2, "toy: takes [N, 10], not ", features.sizes());
  auto rows = features.flatten(1);
  check(rows.size(1) == 10, "toy: takes [N, 10], not ", features.sizes());
  return rows;
}

}  // namespace

MnistBlockImpl::MnistBlockImpl(std::int64_t inputs, std::int64_t outputs)
    : Conv2dImpl(torch::nn::Conv2dOptions(inputs, outputs, 3).padding(1)) {
  // oneDNN computes channels-last convolutions without reordering their weights at every step.
  if (inputs > 1) weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
}

torch::Tensor MnistBlockImpl::forward(const torch::Tensor& images) {
  if (options.in_channels() == 1) return fused::conv_relu_pool(images, weight, bias);
  const auto maps = Conv2dImpl::forward(images.contiguous(at::MemoryFormat::ChannelsLast));
  return at::max_pool2d(maps.relu_(), {2, 2});
}

std::shared_ptr<torch::nn::Module> MnistBlockImpl::clone(
    const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<MnistBlockImpl>(options.in_channels(), options.out_channels());
  copy_state(*this, *copy, device);
  return copy;
}

MnistSmallImpl::MnistSmallImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_images));
  append_module("0", MnistBlock(1, 32));
  append("3", layer_of(flatten_layer));
  append_module("4", torch::nn::Linear(6272, 64));
  append("5", layer_of(relu_layer));
  append_module("6", torch::nn::Linear(64, classes));
}

MnistLargeImpl::MnistLargeImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_images));
  append_module("0", MnistBlock(1, 128));
  append_module("3", MnistBlock(128, 256));
  append_module("6", MnistBlock(256, 512));
  append("9", layer_of(flatten_layer));
  append_module("10", torch::nn::Linear(4608, 512));
  append("11", layer_of(relu_layer));
  append_module("12", torch::nn::Linear(512, 512));
  append("13", layer_of(relu_layer));
  append_module("14", torch::nn::Linear(512, classes));
}

ToyImpl::ToyImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_rows));
  append_module("net1", torch::nn::Linear(10, 10));
  append("relu", layer_of(relu_layer));
  append_module("net2", torch::nn::Linear(10, classes));
}

}  // namespace lockstep::nn
