#include "lockstep/nn/conv/convolution.h"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d_native.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/conv/depthwise.h"
#include "lockstep/nn/conv/faster_kinds.h"
#include "lockstep/nn/conv/pointwise.h"
#include "lockstep/nn/conv/windows.h"
#include "lockstep/nn/conv/winograd.h"
#include "lockstep/nn/linear/linear.h"

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
//
// Note [1x1 convolutions of few images]
//
// On one thread LibTorch leaves 1x1 convolutions of fewer than 16 images to a matrix product that
// copies both factors (ATen/native/Convolution.cpp, use_mkldnn), forward and backward; oneDNN reads
// channels-last images where they lie. A pixel does not look at its neighbours, so rows may count
// as images: the same products, and LibTorch chooses oneDNN.
namespace lockstep::nn::conv {
namespace {

// Of the first or the only value, as LibTorch takes a list; 0 of a list that it refuses.
std::int64_t value_at(at::IntArrayRef list, std::size_t place) {
  if (list.size() == 1) return list[0];
  return list.size() == 2 ? list[place] : 0;
}

// The numbers of a call along the height (0) or the width (1).
struct Axis {
  std::int64_t images, kernel, stride, padding, dilation;

  // How many pixels come out; 0 if the kernel is larger than the padded images.
  std::int64_t outputs() const {
    const std::int64_t rest = images + 2 * padding - dilation * (kernel - 1) - 1;
    return rest < 0 || stride < 1 ? 0 : rest / stride + 1;
  }
};

Axis axis_of(const ConvolutionCall& call, std::size_t which) {
  const auto dimension = static_cast<std::int64_t>(which) + 2;
  return {.images = call.images.size(dimension),
      .kernel = call.weight.size(dimension),
      .stride = value_at(call.stride, which),
      .padding = value_at(call.padding, which),
      .dilation = value_at(call.dilation, which)};
}

// Whether both values of a list, or the only one, are `value`.
bool are_both(at::IntArrayRef list, std::int64_t value) {
  return value_at(list, 0) == value && value_at(list, 1) == value;
}

bool are_lists_usual(const ConvolutionCall& call) {
  const auto is_usual = [](at::IntArrayRef list) { return list.size() == 1 || list.size() == 2; };
  return is_usual(call.stride) && is_usual(call.padding) && is_usual(call.dilation);
}

// Whether it is an ordinary tensor of the CPU with that type.
bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == type &&
         !tensor.is_neg() && !tensor._is_zerotensor() && !tensor._fw_grad(0).defined();
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
  if (weight.size(1) * call.groups != images.size(1)) return false;
  return !call.bias.defined() || (call.bias.dim() == 1 && call.bias.size(0) == weight.size(0));
}

// By LibTorch's rule.
bool is_channels_last(const ConvolutionCall& call) {
  return call.images.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
         call.weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

bool is_usual(const ConvolutionCall& call) {
  if (!are_lists_usual(call) || !are_both(call.dilation, 1)) return false;
  if (!are_types_usual(call) || !are_sizes_usual(call) || !is_channels_last(call)) return false;
  const Axis rows = axis_of(call, 0), columns = axis_of(call, 1);
  return std::min(rows.padding, columns.padding) >= 0 &&
         std::min(rows.outputs(), columns.outputs()) > 0;
}

// An order of the weight cannot be told: it has one channel.
bool is_depthwise(const ConvolutionCall& call) {
  const std::int64_t channels = call.images.size(1);
  return call.groups == channels && call.weight.size(0) == channels &&
         call.images.scalar_type() == at::kFloat &&
         call.images.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

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

constexpr std::int64_t kFewestImages = 16;  // of which LibTorch lets oneDNN compute

at::Tensor with_images(const at::Tensor& images, std::int64_t count, std::int64_t height) {
  return images.permute({0, 2, 3, 1})
      .reshape({count, height, images.size(3), images.size(1)})
      .permute({0, 3, 1, 2});
}

std::int64_t tiles_of(const ConvolutionShape& shape, std::int64_t tile) {
  const auto along = [=](std::int64_t pixels) { return (pixels + tile - 1) / tile; };
  return shape.images * along(shape.out_height) * along(shape.out_width);
}

at::Tensor conv2d_of_libtorch(const ConvolutionCall& call) {
  return at::native::conv2d_symint(call.images, call.weight, call.bias,
      c10::fromIntArrayRefSlow(call.stride), c10::fromIntArrayRefSlow(call.padding),
      c10::fromIntArrayRefSlow(call.dilation), call.groups);
}

// See Note [1x1 convolutions of few images].
at::Tensor pointwise_conv2d(const ConvolutionCall& call) {
  const std::int64_t parts = parts_of_image(call.images.size(0), call.images.size(2));
  if (parts == 1) return conv2d_of_libtorch(call);
  const auto cut = cut_rows(call.images, parts);
  return join_rows(conv2d_of_libtorch({.images = cut,
                       .weight = call.weight,
                       .bias = call.bias,
                       .stride = call.stride,
                       .padding = call.padding,
                       .dilation = call.dilation,
                       .groups = call.groups}),
      parts);
}

// An undefined tensor is none for autograd only where it is optional.
std::optional<at::Tensor> bias_of(const ConvolutionCall& call) {
  return call.bias.defined() ? std::optional(call.bias) : std::nullopt;
}

Multiplier multiplier_of(const at::Tensor& images) {
  static const Multiplier kOfBf16 = bf16_multiplier(simd::processor_features());
  return images.scalar_type() == at::kFloat ? Multiplier::kFloat : kOfBf16;
}

class WinogradConvolution : public torch::autograd::Function<WinogradConvolution> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& images,
      const at::Tensor& weight, const std::optional<at::Tensor>& bias, std::int64_t padding,
      const WinogradKernel* kernel) {
    context->save_for_backward({images, weight});
    context->saved_data["padding"] = padding;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["has_bias"] = bias.has_value();
    return winograd_forward(*kernel, images, weight, bias.value_or(at::Tensor()), padding);
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto padding = context->saved_data["padding"].toInt();
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (at::GradMode::is_enabled()) {
      const auto [of_images, of_weight, of_bias] = differentiable_gradients(
          gradients[0], saved[0], saved[1], has_bias, {1, 1}, {padding, padding});
      return {of_images, of_weight, of_bias, {}, {}};
    }
    const auto& kernel =
        *reinterpret_cast<const WinogradKernel*>(context->saved_data["kernel"].toInt());
    const auto gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor images, weight, bias;
    if (context->needs_input_grad(0))
      images = winograd_input_gradient(kernel, gradient, saved[1], padding);
    if (context->needs_input_grad(1))
      weight = winograd_weight_gradient(kernel, saved[0], gradient, saved[1], padding);
    if (has_bias && context->needs_input_grad(2)) bias = gradient.sum({0, 2, 3});
    return {images, weight, bias, {}, {}};
  }
};

}  // namespace

ConvolutionKind kind_of(const ConvolutionCall& call) {
  if (!is_usual(call)) return ConvolutionKind::kOther;
  if (call.groups != 1)
    return is_depthwise(call) ? ConvolutionKind::kDepthwise : ConvolutionKind::kOther;
  if (axis_of(call, 0).outputs() == 1 && axis_of(call, 1).outputs() == 1) {
    const auto [rows, columns] = windows_of(call);
    if (rows.size > 0 && columns.size > 0) return ConvolutionKind::kSinglePixel;
  }
  const auto is_square = [&](std::int64_t size) {
    return call.weight.size(2) == size && call.weight.size(3) == size;
  };
  const bool is_unpadded = are_both(call.padding, 0);
  const bool is_float = call.images.scalar_type() == at::kFloat;
  if (!are_both(call.stride, 1))
    return is_float ? ConvolutionKind::kStrided : ConvolutionKind::kOther;
  if (is_square(3) && (is_unpadded || are_both(call.padding, 1))) return ConvolutionKind::kWinograd;
  return is_square(1) && is_unpadded && is_float ? ConvolutionKind::kPointwise
                                                 : ConvolutionKind::kOther;
}

at::Tensor conv2d(const ConvolutionCall& call, Kernels who) {
  const auto kind = who == Kernels::kLibTorch ? ConvolutionKind::kOther : kind_of(call);
  if (kind == ConvolutionKind::kSinglePixel) return single_pixel_conv2d(call);
  if (kind == ConvolutionKind::kOther) return conv2d_of_libtorch(call);
  const bool is_own = who == Kernels::kOwn;
  if (kind == ConvolutionKind::kDepthwise)
    return depthwise_conv2d(call, *depthwise_kernels().back(),
        is_own || faster_kinds().depthwise_outputs ? DepthwisePart::kAll
                                                   : DepthwisePart::kGradients);
  const ConvolutionShape shape{call.images.size(0), call.images.size(1), call.weight.size(0),
      axis_of(call, 0).outputs(), axis_of(call, 1).outputs()};
  if (kind == ConvolutionKind::kPointwise)
    return is_own || (faster_kinds().products && is_product_faster(shape))
               ? product_conv2d(call, *linear::gemm_kernels().back())
               : pointwise_conv2d(call);
  if (kind == ConvolutionKind::kStrided)
    return is_own || (faster_kinds().window_products && is_window_product_faster(shape))
               ? window_conv2d(call, *linear::gemm_kernels().back())
               : conv2d_of_libtorch(call);
  static const simd::InstructionSet kInUse = simd::instructions_in_use();
  if (!is_own && !is_own_faster(shape, kInUse, multiplier_of(call.images)))
    return conv2d_of_libtorch(call);
  static const WinogradBuild& fastest = *winograd_builds().back();
  const WinogradKernel& kernel = fitting_tile(shape) == 2 ? fastest.small : fastest.large;
  return WinogradConvolution::apply(
      call.images, call.weight, bias_of(call), axis_of(call, 0).padding, &kernel);
}

at::Tensor dispatched_conv2d(const at::Tensor& images, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, std::int64_t groups) {
  return conv2d({.images = images,
                    .weight = weight,
                    .bias = bias.value_or(at::Tensor()),
                    .stride = stride,
                    .padding = padding,
                    .dilation = dilation,
                    .groups = groups},
      kernels_in_use());
}

std::vector<std::int64_t> pair_of(at::IntArrayRef list) { return {list.front(), list.back()}; }

WindowShape window_shape_of(const at::Tensor& images, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding) {
  const auto outputs = [&](std::size_t axis) {
    const auto dimension = static_cast<std::int64_t>(axis) + 2;
    const std::int64_t pixels = images.size(dimension) + 2 * padding[axis];
    return (pixels - weight.size(dimension)) / stride[axis] + 1;
  };
  return {.images = images.size(0),
      .channels = images.size(1),
      .height = images.size(2),
      .width = images.size(3),
      .out_height = outputs(0),
      .out_width = outputs(1),
      .kernel_height = weight.size(2),
      .kernel_width = weight.size(3),
      .stride_height = stride[0],
      .stride_width = stride[1],
      .padding_height = padding[0],
      .padding_width = padding[1]};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> differentiable_gradients(const at::Tensor& gradient,
    const at::Tensor& images, const at::Tensor& weight, bool has_bias, at::IntArrayRef stride,
    at::IntArrayRef padding, std::int64_t groups) {
  return at::convolution_backward(gradient, images, weight, at::IntArrayRef{weight.size(0)}, stride,
      padding, {1, 1}, false, {0, 0}, groups, {true, true, has_bias});
}

at::Tensor single_pixel_conv2d(const ConvolutionCall& call) {
  const Windows windows = windows_of(call);
  const auto outputs = at::linear(as_rows(met_pixels(call.images, windows)),
      TapsOfWeight::apply(call.weight, windows), bias_of(call));
  return outputs.view({outputs.size(0), 1, 1, -1}).permute({0, 3, 1, 2});
}

std::int64_t parts_of_image(std::int64_t images, std::int64_t height) {
  if (images <= 0 || images >= kFewestImages) return 1;
  for (std::int64_t parts = 2; parts <= height; ++parts) {
    if (height % parts == 0 && images * parts >= kFewestImages) return parts;
  }
  return 1;
}

at::Tensor cut_rows(const at::Tensor& images, std::int64_t parts) {
  return with_images(images, images.size(0) * parts, images.size(2) / parts);
}

at::Tensor join_rows(const at::Tensor& parts_of_images, std::int64_t parts) {
  return with_images(
      parts_of_images, parts_of_images.size(0) / parts, parts_of_images.size(2) * parts);
}

std::int64_t fitting_tile(const ConvolutionShape& shape) {
  constexpr std::int64_t kSmallProducts = 16, kLargeProducts = 36;
  const bool is_small = tiles_of(shape, 2) * kSmallProducts < tiles_of(shape, 4) * kLargeProducts;
  return is_small ? 2 : 4;
}

Multiplier bf16_multiplier(const std::string& features) {
  if (simd::has_feature(features, "amx_bf16")) return Multiplier::kAmx;
  const bool has_bf16 = simd::has_feature(features, "avx512_bf16");
  return has_bf16 ? Multiplier::kAvx512Bf16 : Multiplier::kConverted;
}

bool is_own_faster(const ConvolutionShape& shape, simd::InstructionSet ours, Multiplier theirs) {
  // AMX multiplies sixteen times as fast as ours, which needs a quarter of the products.
  if (ours == simd::InstructionSet::kPlain || theirs == Multiplier::kAmx) return false;
  const bool is_twice_as_fast = theirs == Multiplier::kAvx512Bf16;
  if (is_twice_as_fast && fitting_tile(shape) == 2) return false;
  // With fewer channels the transforms cost more than the products that they save.
  constexpr std::int64_t kFewestChannels = 24;
  if (std::min(shape.inputs, shape.outputs) < kFewestChannels) return false;
  // With fewer tiles, transforming the weights does.
  const std::int64_t fewest_tiles = is_twice_as_fast ? 128 : 16;
  if (tiles_of(shape, fitting_tile(shape)) < fewest_tiles) return false;
  // Of one pixel oneDNN computes only the middle tap.
  return shape.out_height > 1 && shape.out_width > 1;
}

}  // namespace lockstep::nn::conv
