// Note [Convolutions to a single pixel]
//
// The last layers of a ResNet see images of one or two pixels: a 3x3 kernel, padded, looks at
// hardly more than padding.
//
//     . . .              . . .
//     . x .  of 1x1      . x x  of 2x2, stride 2      (x: a pixel, .: padding)
//     . . .              . x x
//
// The output pixel is then one product of the pixels in the window, which lie in a row of a
// channels-last image, and the taps of the kernel that meet them: [N, taps C] [taps C, K]. oneDNN
// takes forty times as long for such a gradient of the weights, since it multiplies padding too.
// The taps that meet padding get zeros.

#include "lockstep/nn/conv/single_pixel.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"

namespace lockstep::nn::conv {
namespace {

/// The taps along an axis that meet pixels; the first of these meets the first pixel.
struct Window {
  std::int64_t first_tap, size;
};

Window window_of(const Axis& axis) {
  const std::int64_t end = std::min(axis.kernel, axis.images + axis.padding);
  return {.first_tap = axis.padding, .size = end - axis.padding};
}

struct Windows {
  Window rows, columns;
};

Windows windows_of(const ConvolutionCall& call) {
  return {window_of(axis_of(call, 0)), window_of(axis_of(call, 1))};
}

// [n, C, h, w] as [n, h w C].
at::Tensor as_rows(const at::Tensor& maps) {
  return maps.permute({0, 2, 3, 1}).reshape({maps.size(0), -1});
}

at::Tensor met_pixels(const at::Tensor& images, const Windows& windows) {
  return images.narrow(2, 0, windows.rows.size).narrow(3, 0, windows.columns.size);
}

at::Tensor met_taps(const at::Tensor& weight, const Windows& windows) {
  const auto& [rows, columns] = windows;
  return weight.narrow(2, rows.first_tap, rows.size).narrow(3, columns.first_tap, columns.size);
}

// Autograd's own gradient of two cuts would fill and copy the kernels twice.
class TapsOfWeight : public torch::autograd::Function<TapsOfWeight> {
 public:
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& weight, const Windows& windows) {
    context->save_for_backward({weight});
    const auto& [rows, columns] = windows;
    context->saved_data["windows"] =
        std::vector<std::int64_t>{rows.first_tap, rows.size, columns.first_tap, columns.size};
    return as_rows(met_taps(weight, windows));
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto given = context->get_saved_variables().front();
    const auto cut = context->saved_data["windows"].toIntVector();
    const Windows windows{
        {.first_tap = cut[0], .size = cut[1]}, {.first_tap = cut[2], .size = cut[3]}};
    auto weight = empty_gradient(given).zero_();
    auto taps = met_taps(weight, windows);
    taps.copy_(
        gradients[0].view({given.size(0), cut[1], cut[3], given.size(1)}).permute({0, 3, 1, 2}));
    return {weight, {}};
  }
};

}  // namespace

bool is_single_pixel(const ConvolutionCall& call) {
  if (!is_usual(call) || axis_of(call, 0).outputs() != 1 || axis_of(call, 1).outputs() != 1)
    return false;
  const auto [rows, columns] = windows_of(call);
  return rows.size > 0 && columns.size > 0;
}

at::Tensor single_pixel_conv2d(const ConvolutionCall& call) {
  const Windows windows = windows_of(call);
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  const auto outputs = at::linear(
      as_rows(met_pixels(call.images, windows)), TapsOfWeight::apply(call.weight, windows), bias);
  return outputs.view({outputs.size(0), 1, 1, -1}).permute({0, 3, 1, 2});
}

}  // namespace lockstep::nn::conv
