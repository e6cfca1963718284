#include "lockstep/nn/conv/winograd.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/conv/winograd_pass.h"

namespace lockstep::nn::conv {
namespace {

at::Tensor convolve(const WinogradKernel& kernel, const at::Tensor& given, const Weights& weights,
    const at::Tensor& bias, std::int64_t padding) {
  const auto images = channels_last(given);
  const auto grid = tile_grid(kernel, images.size(0), images.size(2), images.size(3), padding);
  auto result = at::empty({images.size(0), weights.outputs, grid.out_height, grid.out_width},
      images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const auto zeros = at::zeros({images.size(1)}, at::kFloat);
  const ForwardPass pass{.kernel = kernel,
      .grid = grid,
      .from = pixels_of(images),
      .to = pixels_of(result),
      .weights = weights,
      .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
      .zeros = zeros.const_data_ptr()};
  pass.run();
  return result;
}

}  // namespace

at::Tensor winograd_forward(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& weight, const at::Tensor& bias, std::int64_t padding) {
  const auto floats = weight.to(at::kFloat);
  const auto addends = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  return convolve(kernel, images, weights_of(floats), addends, padding);
}

at::Tensor winograd_input_gradient(const WinogradKernel& kernel, const at::Tensor& gradient,
    const at::Tensor& weight, std::int64_t padding) {
  const auto floats = weight.to(at::kFloat);
  return convolve(kernel, gradient, rotated(weights_of(floats)), {}, 2 - padding);
}

at::Tensor winograd_weight_gradient(const WinogradKernel& kernel, const at::Tensor& images,
    const at::Tensor& gradient, const at::Tensor& weight, std::int64_t padding) {
  const auto pixels = channels_last(images), errors = channels_last(gradient);
  const auto zeros = at::zeros({std::max(images.size(1), gradient.size(1))}, at::kFloat);
  const bool is_float = weight.scalar_type() == at::kFloat;
  auto result = is_float ? empty_gradient(weight) : at::empty_like(weight, at::kFloat);
  const WeightGradientPass pass{.kernel = kernel,
      .grid = tile_grid(kernel, images.size(0), images.size(2), images.size(3), padding),
      .images = pixels_of(pixels),
      .gradient = pixels_of(errors),
      .weights = weights_of(result),
      .zeros = zeros.const_data_ptr()};
  pass.run();
  return is_float ? result : result.to(weight.scalar_type());
}

}  // namespace lockstep::nn::conv
