#include "lockstep/nn/models/residual_block.h"

namespace lockstep::nn {
namespace {

torch::nn::Sequential downsample(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  if (stride == 1 && inputs == outputs) return nullptr;
  return torch::nn::Sequential(
      convolution(inputs, outputs, 1, stride), torch::nn::BatchNorm2d(outputs));
}

torch::Tensor shortcut(torch::nn::Sequential& downsample, const torch::Tensor& input) {
  return downsample.is_empty() ? input : downsample->forward(input);
}

}  // namespace

torch::nn::Conv2d convolution(
    std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));
}

BasicBlockImpl::BasicBlockImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
    : downsample_(downsample(inputs, width, stride)),
      conv1_(convolution(inputs, width, 3, stride)),
      bn1_(width),
      conv2_(convolution(width, width, 3, 1)),
      bn2_(width) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  if (!downsample_.is_empty()) register_module("downsample", downsample_);
}

torch::Tensor BasicBlockImpl::forward(torch::Tensor input) {
  auto maps = bn1_(conv1_(input)).relu_();
  maps = bn2_(conv2_(maps));
  return maps.add_(shortcut(downsample_, input)).relu_();
}

std::tuple<std::int64_t, std::int64_t, std::int64_t> BasicBlockImpl::arguments() const {
  const auto& options = conv1_->options;
  return {options.in_channels(), options.out_channels(), options.stride()->front()};
}

BottleneckImpl::BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
    : downsample_(downsample(inputs, width * kExpansion, stride)),
      conv1_(convolution(inputs, width, 1, 1)),
      bn1_(width),
      conv2_(convolution(width, width, 3, stride)),
      bn2_(width),
      conv3_(convolution(width, width * kExpansion, 1, 1)),
      bn3_(width * kExpansion) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  register_module("conv3", conv3_);
  register_module("bn3", bn3_);
  if (!downsample_.is_empty()) register_module("downsample", downsample_);
}

torch::Tensor BottleneckImpl::forward(torch::Tensor input) {
  auto maps = bn1_(conv1_(input)).relu_();
  maps = bn2_(conv2_(maps)).relu_();
  maps = bn3_(conv3_(maps));
  return maps.add_(shortcut(downsample_, input)).relu_();
}

std::tuple<std::int64_t, std::int64_t, std::int64_t> BottleneckImpl::arguments() const {
  const auto& options = conv1_->options;
  const auto stride = conv2_->options.stride()->front();
  return {options.in_channels(), options.out_channels(), stride};
}

}  // namespace lockstep::nn
