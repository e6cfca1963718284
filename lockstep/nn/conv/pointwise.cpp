#include "lockstep/nn/conv/pointwise.h"

#include <algorithm>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/linear/linear.h"

// Note [1x1 convolutions as products]
//
// Channels last, the pixels of all images are the rows of a matrix where they lie, and the weight
// is one, too:
//
//     outputs [N H W, K] = pixels [N H W, C] x taps [K, C]^T
//     of the pixels      = gradient [N H W, K] x taps [K, C]
//     of the taps [K, C] = gradient^T x pixels
//
// Nothing is copied or reordered. With few channels the gradient of the taps is a task or two of a
// product, however many pixels there are. So parts of the pixels are products of their own, which
// are then added in order.

namespace lockstep::nn::conv {
namespace {

using at::Tensor;
using linear::MatrixView;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [N, C, H, W], channels-last, as [N H W, C], from a pixel on.
MatrixView as_pixels(const Tensor& maps, std::int64_t first = 0) {
  return {maps.const_data_ptr<float>() + first * maps.size(1), maps.size(1), 1};
}

// [K, C, 1, 1], contiguous, as [K, C].
MatrixView as_taps(const Tensor& weight) {
  return {weight.const_data_ptr<float>(), weight.size(1), 1};
}

std::int64_t pixels_in(const Tensor& maps) { return maps.numel() / maps.size(1); }

Tensor product_outputs(const linear::GemmKernel& kernel, const Tensor& images, const Tensor& weight,
    const Tensor& bias) {
  const std::int64_t outputs = weight.size(0);
  auto result = at::empty({images.size(0), outputs, images.size(2), images.size(3)},
      images.options().memory_format(at::MemoryFormat::ChannelsLast));
  linear::multiply(kernel, {.left = as_pixels(images),
                               .right = linear::transposed(as_taps(weight)),
                               .rows = pixels_in(images),
                               .columns = outputs,
                               .inner = images.size(1),
                               .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                               .products = result.mutable_data_ptr<float>(),
                               .product_stride = outputs});
  return result;
}

Tensor product_image_gradient(const linear::GemmKernel& kernel, const Tensor& gradient,
    const Tensor& weight, const Tensor& images) {
  auto result = at::empty_like(images, images.options(), at::MemoryFormat::ChannelsLast);
  linear::multiply(kernel, {.left = as_pixels(gradient),
                               .right = as_taps(weight),
                               .rows = pixels_in(images),
                               .columns = images.size(1),
                               .inner = weight.size(0),
                               .bias = nullptr,
                               .products = result.mutable_data_ptr<float>(),
                               .product_stride = images.size(1)});
  return result;
}

// How many parts: whatever the threads are, so that these change no bit.
std::int64_t parts_of_pixels(std::int64_t pixels, std::int64_t tasks) {
  constexpr std::int64_t kFewestPixels = 2048, kTasks = 32;
  return std::clamp<std::int64_t>(
      pixels / kFewestPixels, 1, std::max(kTasks / tasks, std::int64_t{1}));
}

/// The gradient of the taps, [K, C].
struct TapGradient {
  const linear::GemmKernel& kernel;
  const Tensor &gradient, &images;

  std::int64_t size() const { return gradient.size(1) * images.size(1); }

  linear::Gemm over(Range pixels, float* products) const {
    return {.left = linear::transposed(as_pixels(gradient, pixels.begin)),
        .right = as_pixels(images, pixels.begin),
        .rows = gradient.size(1),
        .columns = images.size(1),
        .inner = pixels.end - pixels.begin,
        .bias = nullptr,
        .products = products,
        .product_stride = images.size(1)};
  }

  void compute(float* result) const {
    const linear::Gemm whole = over({0, pixels_in(images)}, result);
    const std::int64_t parts = parts_of_pixels(whole.inner, kernel.tasks(whole));
    parts == 1 ? linear::multiply(kernel, whole) : add_parts(whole, parts);
  }

 private:
  void add_parts(const linear::Gemm& whole, std::int64_t parts) const {
    const auto sums = at::empty({parts, size()}, on_host(at::kFloat));
    auto* const first = sums.mutable_data_ptr<float>();
    const std::int64_t tasks = kernel.tasks(whole);
    in_parallel(parts * tasks, [&](Range range) {
      auto scratch = at::empty({kernel.scratch_floats(whole)}, on_host(at::kFloat));
      for (std::int64_t task = range.begin; task < range.end;) {
        const std::int64_t part = task / tasks, end = std::min(range.end, (part + 1) * tasks);
        const Range pixels{whole.inner * part / parts, whole.inner * (part + 1) / parts};
        kernel.multiply(over(pixels, first + part * size()),
            {task - part * tasks, end - part * tasks}, scratch.mutable_data_ptr<float>());
        task = end;
      }
    });
    in_parallel(size(), [&](Range range) {
      std::copy(first + range.begin, first + range.end, whole.products + range.begin);
      for (std::int64_t part = 1; part < parts; ++part)
        for (std::int64_t i = range.begin; i < range.end; ++i)
          whole.products[i] += first[part * size() + i];
    });
  }
};

Tensor product_weight_gradient(const linear::GemmKernel& kernel, const Tensor& gradient,
    const Tensor& images, const Tensor& weight) {
  auto result = empty_gradient(weight);
  TapGradient{kernel, gradient, images}.compute(result.mutable_data_ptr<float>());
  return result;
}

class ProductConvolution : public torch::autograd::Function<ProductConvolution> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& images, const Tensor& weight,
      const std::optional<Tensor>& bias, const linear::GemmKernel* kernel) {
    context->save_for_backward({images, weight});
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["has_bias"] = bias.has_value();
    return product_outputs(*kernel, images, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &images = saved[0], &weight = saved[1];
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto [of_images, of_weight, of_bias] =
          differentiable_gradients(gradients[0], images, weight, has_bias, {1, 1}, {0, 0});
      return {of_images, of_weight, of_bias, {}};
    }
    const auto& kernel =
        *reinterpret_cast<const linear::GemmKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    Tensor of_images, of_weight, of_bias;
    if (context->needs_input_grad(0))
      of_images = product_image_gradient(kernel, gradient, weight, images);
    if (context->needs_input_grad(1))
      of_weight = product_weight_gradient(kernel, gradient, images, weight);
    if (has_bias && context->needs_input_grad(2)) of_bias = gradient.sum({0, 2, 3});
    return {of_images, of_weight, of_bias, {}};
  }
};

}  // namespace

bool is_product_faster(const ConvolutionShape& shape) {
  constexpr std::int64_t kFewestChannels = 16;
  return std::min(shape.inputs, shape.outputs) >= kFewestChannels;
}

Tensor product_conv2d(const ConvolutionCall& call, const linear::GemmKernel& kernel) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias.contiguous()) : std::nullopt;
  return ProductConvolution::apply(call.images.contiguous(at::MemoryFormat::ChannelsLast),
      call.weight.contiguous(), bias, &kernel);
}

}  // namespace lockstep::nn::conv
