#include "lockstep/nn/conv/transposed.h"

#include <algorithm>

#include <ATen/ops/conv_transpose2d_native.h>
#include <ATen/ops/linear.h>

#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn::conv {
namespace {

// A list may stand for both axes by one number.
bool are_all(at::IntArrayRef list, std::int64_t wanted) {
  return !list.empty() &&
         std::ranges::all_of(list, [=](std::int64_t value) { return value == wanted; });
}

bool is_for_product(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && is_readable(tensor) && tensor.dim() == 4 &&
         tensor.numel() > 0;
}

// The images, and by LibTorch's rule the output. Images of one pixel or one channel lie in both
// orders: LibTorch makes contiguous outputs of them, which callers view as rows.
bool are_channels_last(const TransposedCall& call) {
  const auto suggests_it = [](const at::Tensor& tensor) {
    return tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  };
  return call.images.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         (suggests_it(call.images) || suggests_it(call.weight));
}

}  // namespace

bool makes_tiles(const TransposedCall& call) {
  const at::Tensor &images = call.images, &weight = call.weight;
  return is_for_product(images) && is_for_product(weight) && weight.size(0) == images.size(1) &&
         are_channels_last(call) && weight.size(2) == weight.size(3) &&
         are_all(call.stride, weight.size(2)) && are_all(call.padding, 0) &&
         are_all(call.output_padding, 0) && call.groups == 1 && are_all(call.dilation, 1);
}

at::Tensor tiles_of_pixels(const TransposedCall& call) {
  const at::Tensor &images = call.images, &weight = call.weight;
  const std::int64_t count = images.size(0), height = images.size(2), width = images.size(3);
  const std::int64_t outputs = weight.size(1), tile = weight.size(2);
  const auto taps = weight.permute({2, 3, 1, 0}).reshape({tile * tile * outputs, -1});
  const auto bias = call.bias && call.bias->defined()
                        ? std::optional(call.bias->repeat(tile * tile))
                        : std::nullopt;
  return at::linear(images.permute({0, 2, 3, 1}), taps, bias)
      .view({count, height, width, tile, tile, outputs})
      .transpose(2, 3)
      .reshape({count, height * tile, width * tile, outputs})
      .permute({0, 3, 1, 2});
}

at::Tensor dispatched_conv_transpose2d(const at::Tensor& images, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef output_padding, std::int64_t groups, at::IntArrayRef dilation) {
  const TransposedCall call{.images = images,
      .weight = weight,
      .bias = bias,
      .stride = stride,
      .padding = padding,
      .output_padding = output_padding,
      .groups = groups,
      .dilation = dilation};
  const Kernels who = kernels_in_use();
  const bool is_product = who != Kernels::kLibTorch && makes_tiles(call) &&
                          (who == Kernels::kOwn || linear::are_products_faster());
  if (is_product) return tiles_of_pixels(call);
  return at::native::conv_transpose2d_symint(images, weight, bias, c10::fromIntArrayRefSlow(stride),
      c10::fromIntArrayRefSlow(padding), c10::fromIntArrayRefSlow(output_padding), groups,
      c10::fromIntArrayRefSlow(dilation));
}

}  // namespace lockstep::nn::conv
