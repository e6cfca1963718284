#include "lockstep/nn/conv/windows.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/conv/window_shape.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/linear/linear.h"

// Note [Products of windows]
//
// The pixels that a kernel sees at a time, its window, are copied into a row (im2col). They lie
// there as the taps of a channels-last weight do, so that all outputs are one product:
//
//     image [H, W, C], stride 2         windows [outputs, h w C]
//     a b c d e                         a b c f g h k l m     of the first output pixel
//     f g h i j         ------>         c d e h i j m n o     of the next
//     k l m n o
//
//     outputs         = windows x taps [K, h w C]^T
//     of the windows  = gradient [outputs, K] x taps; a pixel sums what its copies have
//     of the taps     = gradient^T x windows
//
// A row of a window is contiguous in its image, so with many channels the copies cost little beside
// the products, and they are made again in the backward pass. As many rows of windows as stay in
// the third-level cache are taken at a time. How many does not depend on the threads, and their
// sums are added in order.

namespace lockstep::nn::conv {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body with each tap that sees a place of a padded axis, and the window in which it does.
template <typename Body>
void each_sight(std::int64_t place, std::int64_t stride, std::int64_t taps, std::int64_t windows,
    const Body& body) {
  std::int64_t window = place / stride;
  for (std::int64_t tap = place % stride; tap < taps && window >= 0; tap += stride, --window)
    if (window < windows) body(tap, window);
}

/// Copies between images and their windows, [taps, C] each. Rows are those of all images, one after
/// the other.
struct WindowCopy {
  const WindowShape& shape;

  std::int64_t depth() const { return shape.taps() * shape.channels; }
  std::int64_t row_floats() const { return shape.out_width * depth(); }

  // One row of windows. Padding is zero.
  void fill(const float* images, std::int64_t row, float* to) const {
    const float* const image =
        images + row / shape.out_height * shape.height * shape.width * shape.channels;
    const std::int64_t top = row % shape.out_height * shape.stride_height - shape.padding_height;
    for (std::int64_t column = 0; column < shape.out_width; ++column, to += depth())
      fill_window(image, top, column * shape.stride_width - shape.padding_width, to);
  }

  // The rows of windows that see rows of pixels.
  Range seeing(Range pixels) const {
    const std::int64_t first = pixels.begin, last = pixels.end - 1;
    const std::int64_t bottom = last % shape.height + shape.padding_height,
                       top = first % shape.height + shape.padding_height - shape.kernel_height;
    const std::int64_t begin =
        first / shape.height * shape.out_height +
        std::clamp<std::int64_t>(
            (top + shape.stride_height) / shape.stride_height, 0, shape.out_height);
    const std::int64_t end = last / shape.height * shape.out_height +
                             std::min(bottom / shape.stride_height + 1, shape.out_height);
    return {begin, std::max(begin, end)};
  }

  // One row of pixels: each sums what windows have of it. The windows begin with that row of them.
  void sum(const float* windows, std::int64_t first, std::int64_t row, float* to) const {
    const std::int64_t before = row / shape.height * shape.out_height - first;
    std::fill_n(to, shape.width * shape.channels, 0.0F);
    each_sight(row % shape.height + shape.padding_height, shape.stride_height, shape.kernel_height,
        shape.out_height, [&](std::int64_t tap, std::int64_t window) {
          add_row(windows + (before + window) * row_floats() +
                      tap * shape.kernel_width * shape.channels,
              to);
        });
  }

 private:
  void fill_window(const float* image, std::int64_t top, std::int64_t left, float* to) const {
    const std::int64_t first = std::clamp<std::int64_t>(-left, 0, shape.kernel_width);
    const std::int64_t end = std::clamp(shape.width - left, first, shape.kernel_width);
    const std::int64_t row = shape.kernel_width * shape.channels;
    for (std::int64_t y = top; y < top + shape.kernel_height; ++y, to += row) {
      const bool sees_pixels = y >= 0 && y < shape.height && first < end;
      if (!sees_pixels || end - first < shape.kernel_width) std::fill_n(to, row, 0.0F);
      if (!sees_pixels) continue;
      std::copy_n(image + (y * shape.width + left + first) * shape.channels,
          (end - first) * shape.channels, to + first * shape.channels);
    }
  }

  // Adds a row of the taps of a row of windows.
  void add_row(const float* taps, float* to) const {
    for (std::int64_t column = 0; column < shape.width; ++column, to += shape.channels) {
      each_sight(column + shape.padding_width, shape.stride_width, shape.kernel_width,
          shape.out_width, [&](std::int64_t tap, std::int64_t window) {
            const float* const from = taps + window * depth() + tap * shape.channels;
            for (std::int64_t channel = 0; channel < shape.channels; ++channel)
              to[channel] += from[channel];
          });
    }
  }
};

/// Memory that is kept from one part to the next.
class WindowMemory {
 public:
  float* room_for(std::int64_t floats) {
    if (!memory_.defined() || memory_.numel() < floats)
      memory_ = at::empty({floats}, on_host(at::kFloat));
    return memory_.mutable_data_ptr<float>();
  }

 private:
  Tensor memory_;
};

/// The passes of one convolution, some rows of windows at a time.
struct WindowProducts {
  const linear::GemmKernel& kernel;
  WindowShape shape;
  std::int64_t outputs;  ///< channels

  Tensor convolved(const Tensor& images, const Tensor& weight, const Tensor& bias) const {
    auto result = at::empty({shape.images, outputs, shape.out_height, shape.out_width},
        images.options().memory_format(at::MemoryFormat::ChannelsLast));
    const std::int64_t depth = copy().depth();
    WindowMemory memory;
    each_part(shape.images * shape.out_height, rows_at_once(), [&](Range rows) {
      float* const windows = memory.room_for(floats_in(rows));
      fill(images, rows, windows);
      multiply({.left = {windows, depth, 1},
          .right = linear::transposed(taps_of(weight)),
          .rows = windows_in(rows),
          .columns = outputs,
          .inner = depth,
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .products = result.mutable_data_ptr<float>() + outputs_before(rows),
          .product_stride = outputs});
    });
    return result;
  }

  // By rows of pixels. Windows that see those of two parts are multiplied twice.
  Tensor image_gradient(const Tensor& gradient, const Tensor& weight, const Tensor& images) const {
    auto result = at::empty_like(images, images.options(), at::MemoryFormat::ChannelsLast);
    const std::int64_t depth = copy().depth();
    WindowMemory memory;
    each_part(shape.images * shape.height, pixel_rows_at_once(), [&](Range pixels) {
      const Range rows = copy().seeing(pixels);
      float* const windows = memory.room_for(floats_in(rows));
      multiply({.left = outputs_of(gradient, rows),
          .right = taps_of(weight),
          .rows = windows_in(rows),
          .columns = depth,
          .inner = outputs,
          .bias = nullptr,
          .products = windows,
          .product_stride = depth});
      sum(windows, rows.begin, pixels, result);
    });
    return result;
  }

  // In the weight's layout.
  Tensor weight_gradient(const Tensor& gradient, const Tensor& images, const Tensor& weight) const {
    auto result = empty_gradient(weight);
    const std::int64_t depth = copy().depth();
    WindowMemory memory;
    each_part(shape.images * shape.out_height, rows_at_once(), [&](Range rows) {
      float* const windows = memory.room_for(floats_in(rows));
      fill(images, rows, windows);
      multiply({.left = linear::transposed(outputs_of(gradient, rows)),
          .right = {windows, depth, 1},
          .rows = outputs,
          .columns = depth,
          .inner = windows_in(rows),
          .bias = nullptr,
          .products = result.mutable_data_ptr<float>(),
          .product_stride = depth,
          .adds = rows.begin > 0});
    });
    return result;
  }

 private:
  WindowCopy copy() const { return {shape}; }
  std::int64_t windows_in(Range rows) const { return (rows.end - rows.begin) * shape.out_width; }
  std::int64_t floats_in(Range rows) const { return (rows.end - rows.begin) * copy().row_floats(); }
  std::int64_t outputs_before(Range rows) const { return rows.begin * shape.out_width * outputs; }

  std::int64_t rows_at_once() const {
    constexpr std::int64_t kFloats = 2'000'000;
    return std::max<std::int64_t>(kFloats / copy().row_floats(), 1);
  }

  // Of whole images, if they fit.
  std::int64_t pixel_rows_at_once() const {
    const std::int64_t rows = rows_at_once(), images = rows / shape.out_height;
    return images > 0 ? images * shape.height : rows * shape.stride_height;
  }

  template <typename Body>
  static void each_part(std::int64_t count, std::int64_t size, const Body& body) {
    for (std::int64_t first = 0; first < count; first += size)
      body(Range{first, std::min(first + size, count)});
  }

  void multiply(const linear::Gemm& gemm) const { linear::multiply(kernel, gemm); }

  // [K, C, h, w], channels-last, as [K, h w C].
  linear::MatrixView taps_of(const Tensor& weight) const {
    return {weight.const_data_ptr<float>(), copy().depth(), 1};
  }

  // [N, K, out_height, out_width], channels-last, as [outputs, K], from a row on.
  linear::MatrixView outputs_of(const Tensor& maps, Range rows) const {
    return {maps.const_data_ptr<float>() + outputs_before(rows), outputs, 1};
  }

  void fill(const Tensor& images, Range rows, float* windows) const {
    in_parallel(rows.end - rows.begin, [&](Range part) {
      for (std::int64_t row = part.begin; row < part.end; ++row)
        copy().fill(
            images.const_data_ptr<float>(), rows.begin + row, windows + row * copy().row_floats());
    });
  }

  void sum(const float* windows, std::int64_t first, Range pixels, const Tensor& images) const {
    auto* const to = images.mutable_data_ptr<float>();
    in_parallel(pixels.end - pixels.begin, [&](Range part) {
      for (std::int64_t row = pixels.begin + part.begin; row < pixels.begin + part.end; ++row)
        copy().sum(windows, first, row, to + row * shape.width * shape.channels);
    });
  }
};

class WindowConvolution : public torch::autograd::Function<WindowConvolution> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& images, const Tensor& given_weight,
      const std::optional<Tensor>& bias, const std::vector<std::int64_t>& stride,
      const std::vector<std::int64_t>& padding, const linear::GemmKernel* kernel) {
    const auto weight = given_weight.contiguous(at::MemoryFormat::ChannelsLast);
    // The given one, too, so that a backward after it was changed is refused.
    context->save_for_backward({images, weight, given_weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return WindowProducts{*kernel, window_shape_of(images, weight, stride, padding), weight.size(0)}
        .convolved(images, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto stride = context->saved_data["stride"].toIntVector();
    const auto padding = context->saved_data["padding"].toIntVector();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const Tensor &images = saved[0], &weight = saved[1];
    if (at::GradMode::is_enabled()) {
      const auto [of_images, of_weight, of_bias] =
          differentiable_gradients(gradients[0], images, saved[2], has_bias, stride, padding);
      return {of_images, of_weight, of_bias, {}, {}, {}};
    }
    const WindowProducts products{
        *reinterpret_cast<const linear::GemmKernel*>(context->saved_data["kernel"].toInt()),
        window_shape_of(images, weight, stride, padding), weight.size(0)};
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    Tensor of_images, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_images = products.image_gradient(gradient, weight, images);
    if (context->needs_input_grad(1))
      of_weight = products.weight_gradient(gradient, images, weight);
    if (has_bias && context->needs_input_grad(2)) of_bias = gradient.sum({0, 2, 3});
    return {of_images, of_weight, of_bias, {}, {}, {}};
  }
};

}  // namespace

bool is_window_product_faster(const ConvolutionShape& shape) {
  // Of a stem's three channels the copies are short and cost more than the products.
  constexpr std::int64_t kFewestChannels = 32;
  return std::min(shape.inputs, shape.outputs) >= kFewestChannels;
}

Tensor window_conv2d(const ConvolutionCall& call, const linear::GemmKernel& kernel) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias.contiguous()) : std::nullopt;
  return WindowConvolution::apply(call.images.contiguous(at::MemoryFormat::ChannelsLast),
      call.weight, bias, pair_of(call.stride), pair_of(call.padding), &kernel);
}

}  // namespace lockstep::nn::conv
