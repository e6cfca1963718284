#include "lockstep/nn/fused/conv_relu_pool.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

// Partial sums of this many images are added in order: the same bits for any number of threads.
constexpr std::int64_t kImagesAtOnce = 32;

const ConvReluPoolKernel& fastest_kernel() {
  static const ConvReluPoolKernel& fastest = *conv_relu_pool_kernels().back();
  return fastest;
}

Element element_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? Element::kFloat : Element::kBFloat16;
}

ConvReluPoolShape shape_of(const at::Tensor& images, std::int64_t channels) {
  return {images.size(2), images.size(3), channels};
}

const char* at_image(const at::Tensor& tensor, std::int64_t image) {
  return static_cast<const char*>(tensor.const_data_ptr()) +
         image * (tensor.numel() / tensor.size(0)) * tensor.element_size();
}

char* at_image(at::Tensor& tensor, std::int64_t image) {
  return static_cast<char*>(tensor.mutable_data_ptr()) +
         image * (tensor.numel() / tensor.size(0)) * tensor.element_size();
}

template <typename Body>
void for_each_part(std::int64_t images, const Body& body) {
  const std::int64_t parts = (images + kImagesAtOnce - 1) / kImagesAtOnce;
  in_parallel(parts, [&](Range some) {
    for (std::int64_t part = some.begin; part < some.end; ++part) {
      const std::int64_t first = part * kImagesAtOnce;
      body(part, first, std::min(kImagesAtOnce, images - first));
    }
  });
}

struct Pooled {
  at::Tensor values, codes;
};

Pooled run_forward(const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias,
    at::ScalarType type) {
  const auto shape = shape_of(images, weight.size(0));
  const std::int64_t count = images.size(0), height = shape.height / 2, width = shape.width / 2;
  const std::int64_t code_stride = (shape.channels + kCodeUnit - 1) / kCodeUnit * kCodeUnit;
  Pooled pooled{at::empty({count, shape.channels, height, width}, images.options().dtype(type)),
      at::empty({count, height, width, code_stride}, images.options().dtype(at::kByte))};
  const auto& kernel = fastest_kernel();
  for_each_part(count, [&](std::int64_t, std::int64_t first, std::int64_t some) {
    auto scratch = at::empty({kernel.forward_scratch(shape)}, at::kFloat);
    kernel.forward({.shape = shape,
        .code_stride = code_stride,
        .image_element = element_of(images),
        .pooled_element = element_of(pooled.values),
        .image_count = some,
        .images = at_image(images, first),
        .weight = weight.const_data_ptr<float>(),
        .bias = bias.const_data_ptr<float>(),
        .pooled = at_image(pooled.values, first),
        .codes = reinterpret_cast<std::uint8_t*>(at_image(pooled.codes, first)),
        .scratch = scratch.mutable_data_ptr<float>()});
  });
  return pooled;
}

// Returns [channels, 10]: the gradients of each channel's 9 weights and of its bias.
at::Tensor run_backward(
    const at::Tensor& images, const at::Tensor& pooled_gradient, const at::Tensor& codes) {
  const auto shape = shape_of(images, pooled_gradient.size(1));
  const std::int64_t parts = (images.size(0) + kImagesAtOnce - 1) / kImagesAtOnce;
  auto sums = at::empty({parts, shape.channels, 10}, at::kFloat);
  const auto& kernel = fastest_kernel();
  for_each_part(images.size(0), [&](std::int64_t part, std::int64_t first, std::int64_t count) {
    auto scratch = at::empty({kernel.backward_scratch(shape)}, at::kFloat);
    kernel.backward({.shape = shape,
        .code_stride = codes.size(3),
        .image_element = element_of(images),
        .pooled_element = element_of(pooled_gradient),
        .image_count = count,
        .images = at_image(images, first),
        .pooled_gradient = at_image(pooled_gradient, first),
        .codes = reinterpret_cast<const std::uint8_t*>(at_image(codes, first)),
        .sums = reinterpret_cast<float*>(at_image(sums, part)),
        .scratch = scratch.mutable_data_ptr<float>()});
  });
  return sums.sum(0);
}

// The gradients of weight and bias by LibTorch's operators, which can be differentiated again.
torch::autograd::variable_list differentiable_gradients(const at::Tensor& images,
    const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& gradient) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto pixels = images.to(at::kFloat);
  const auto maps = at::conv2d(pixels, weight.detach(), bias.detach(), 1, 1).relu();
  const auto winners = std::get<1>(at::max_pool2d_with_indices(maps, 2));
  const auto unpooled = at::max_pool2d_with_indices_backward(
      gradient.to(at::kFloat), maps, 2, 2, 0, 1, false, winners);
  const auto [none, of_weight, of_bias] = at::convolution_backward(
      at::threshold_backward(unpooled, maps, 0), pixels, weight, at::IntArrayRef{bias.size(0)},
      {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, {false, true, true});
  return {{}, of_weight, of_bias, {}};
}

class ConvReluPool : public torch::autograd::Function<ConvReluPool> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
      const at::Tensor& weight, const at::Tensor& bias, at::ScalarType type) {
    const auto pixels = images.contiguous();
    auto pooled = run_forward(pixels, weight.contiguous(), bias.contiguous(), type);
    context->save_for_backward({pixels, pooled.codes, weight, bias});
    return pooled.values;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled())
      return differentiable_gradients(saved[0], saved[2], saved[3], gradients[0]);
    const auto sums = run_backward(saved[0], gradients[0].contiguous(), saved[1]);
    const auto weight = sums.narrow(1, 0, 9).reshape({sums.size(0), 1, 3, 3});
    return {{}, weight, sums.select(1, 9).contiguous(), {}};
  }
};

bool is_bfloat16_autocast() {
  return at::autocast::is_autocast_enabled(at::kCPU) &&
         at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16;
}

bool are_types_covered(const at::Tensor& images) {
  if (is_bfloat16_autocast()) {
    return images.scalar_type() == at::kFloat || images.scalar_type() == at::kBFloat16;
  }
  return images.scalar_type() == at::kFloat && !at::autocast::is_autocast_enabled(at::kCPU);
}

bool is_parameter(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() && is_readable(tensor) && tensor.scalar_type() == at::kFloat &&
         tensor.sizes() == sizes;
}

// With one channel LibTorch takes NHWC for NCHW, which is slower; these strides make it clear.
at::Tensor as_channels_last(const at::Tensor& tensor) {
  if (tensor.dim() != 4 || tensor.size(1) != 1) {
    return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  }
  return tensor.contiguous()
      .view({tensor.size(0), tensor.size(2), tensor.size(3), 1})
      .permute({0, 3, 1, 2});
}

}  // namespace

std::span<const ConvReluPoolKernel* const> conv_relu_pool_kernels() {
  static const ConvReluPoolKernel* const kBuilds[] = {
      &conv_relu_pool_plain(), &conv_relu_pool_avx2(), &conv_relu_pool_avx512()};
  return simd::usable(kBuilds);
}

bool is_conv_relu_pool_fused(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias) {
  if (!weight.defined() || weight.dim() != 4) return false;
  const std::int64_t channels = weight.size(0);
  const bool is_image = is_readable(images) && images.dim() == 4 && images.size(0) > 0 &&
                        images.size(1) == 1 && images.size(2) >= 2 && images.size(3) >= 2;
  const bool wants_input_gradient = images.requires_grad() && at::GradMode::is_enabled();
  return is_image && !wants_input_gradient && are_types_covered(images) && channels > 0 &&
         is_parameter(weight, {channels, 1, 3, 3}) && is_parameter(bias, {channels});
}

at::Tensor conv_relu_pool(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias) {
  if (!is_conv_relu_pool_fused(images, weight, bias)) {
    return conv_relu_pool_by_aten(images, weight, bias);
  }
  // For profiles: LibTorch reports its own operators.
  RECORD_FUNCTION(
      "lockstep::conv_relu_pool", c10::ArrayRef<const c10::IValue>({images, weight, bias}));
  return ConvReluPool::apply(
      images, weight, bias, is_bfloat16_autocast() ? at::kBFloat16 : at::kFloat);
}

at::Tensor conv_relu_pool_by_aten(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& bias) {
  const auto maps = at::conv2d(as_channels_last(images), as_channels_last(weight), bias, 1, 1);
  return at::max_pool2d(maps.relu(), 2);
}

}  // namespace lockstep::nn::fused
