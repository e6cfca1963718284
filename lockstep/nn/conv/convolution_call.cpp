#include "lockstep/nn/conv/convolution_call.h"

#include <algorithm>

#include <ATen/ops/conv2d_native.h>

namespace lockstep::nn::conv {
namespace {

// Of the first or the only value, as LibTorch takes a list; 0 of a list that it refuses.
std::int64_t value_at(at::IntArrayRef list, std::size_t place) {
  if (list.size() == 1) return list[0];
  return list.size() == 2 ? list[place] : 0;
}

bool are_lists_usual(const ConvolutionCall& call) {
  const auto is_usual = [](at::IntArrayRef list) { return list.size() == 1 || list.size() == 2; };
  return is_usual(call.stride) && is_usual(call.padding) && is_usual(call.dilation);
}

bool are_types_usual(const ConvolutionCall& call) {
  const auto type = call.images.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && is_plain(call.images, type) &&
         is_plain(call.weight, type) && (!call.bias.defined() || is_plain(call.bias, type));
}

bool are_sizes_usual(const ConvolutionCall& call) {
  const at::Tensor &images = call.images, &weight = call.weight;
  if (images.dim() != 4 || weight.dim() != 4 || images.numel() == 0 || weight.numel() == 0)
    return false;
  if (weight.size(1) != images.size(1)) return false;
  return !call.bias.defined() || (call.bias.dim() == 1 && call.bias.size(0) == weight.size(0));
}

}  // namespace

std::int64_t Axis::outputs() const {
  const std::int64_t rest = images + 2 * padding - dilation * (kernel - 1) - 1;
  return rest < 0 || stride < 1 ? 0 : rest / stride + 1;
}

Axis axis_of(const ConvolutionCall& call, std::size_t which) {
  const auto dimension = static_cast<std::int64_t>(which) + 2;
  return {.images = call.images.size(dimension),
      .kernel = call.weight.size(dimension),
      .stride = value_at(call.stride, which),
      .padding = value_at(call.padding, which),
      .dilation = value_at(call.dilation, which)};
}

bool are_both(at::IntArrayRef list, std::int64_t value) {
  return value_at(list, 0) == value && value_at(list, 1) == value;
}

bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == type &&
         !tensor.is_neg() && !tensor._is_zerotensor() && !tensor._fw_grad(0).defined();
}

bool is_channels_last(const ConvolutionCall& call) {
  return call.images.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
         call.weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

bool is_usual(const ConvolutionCall& call) {
  if (!are_lists_usual(call) || call.groups != 1 || !are_both(call.dilation, 1)) return false;
  if (!are_types_usual(call) || !are_sizes_usual(call) || !is_channels_last(call)) return false;
  const Axis rows = axis_of(call, 0), columns = axis_of(call, 1);
  return std::min(rows.padding, columns.padding) >= 0 &&
         std::min(rows.outputs(), columns.outputs()) > 0;
}

at::Tensor conv2d_of_libtorch(const ConvolutionCall& call) {
  return at::native::conv2d_symint(call.images, call.weight, call.bias,
      c10::fromIntArrayRefSlow(call.stride), c10::fromIntArrayRefSlow(call.padding),
      c10::fromIntArrayRefSlow(call.dilation), call.groups);
}

}  // namespace lockstep::nn::conv
