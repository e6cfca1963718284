#include "lockstep/nn/models/mnist_block.h"

#include <ATen/ops/max_pool2d.h>

#include "lockstep/nn/fused/conv_relu_pool.h"
#include "lockstep/nn/models/clone.h"

namespace lockstep::nn {

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

}  // namespace lockstep::nn
