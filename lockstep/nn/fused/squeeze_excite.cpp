#include "lockstep/nn/fused/squeeze_excite.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardsigmoid_backward.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/fused/batch_statistics.h"
#include "lockstep/nn/fused/gradients_with_graph.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/linear/linear.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [A, B, 1, 1] as [A, B].
Tensor as_matrix(const Tensor& weight) { return weight.view({weight.size(0), weight.size(1)}); }

Tensor gated(const Tensor& seen, Gate gate) {
  return gate == Gate::kSigmoid ? at::sigmoid(seen) : at::hardsigmoid(seen);
}

// Returns what LibTorch computes of each value, of so few at once that it does so on one thread:
// it rounds the last of a thread another way. `compute` gets a function that cuts contiguous
// tensors of those sizes.
template <typename Compute>
Tensor in_pieces(at::IntArrayRef sizes, const Compute& compute) {
  constexpr std::int64_t kPiece = 16'384;
  const auto result = at::empty(sizes, on_host(at::kFloat));
  const auto values = result.view(-1);
  for (std::int64_t begin = 0; begin < result.numel(); begin += kPiece) {
    const std::int64_t size = std::min(kPiece, result.numel() - begin);
    const auto cut = [=](const Tensor& all) { return all.view(-1).narrow(0, begin, size); };
    cut(values).copy_(compute(cut));
  }
  return result;
}

// By our kernel, for MKL's sums depend on the threads. The result is contiguous.
void multiply_matrices(
    const Tensor& left, const Tensor& right, const Tensor& bias, const Tensor& result) {
  static const linear::GemmKernel& fastest = *linear::gemm_kernels().back();
  linear::multiply(fastest, {.left = linear::view_of(left),
                                .right = linear::view_of(right),
                                .rows = left.size(0),
                                .columns = right.size(1),
                                .inner = left.size(1),
                                .bias = bias.defined() ? floats(bias) : nullptr,
                                .products = to_floats(result),
                                .product_stride = right.size(1)});
}

Tensor product_of(const Tensor& left, const Tensor& right, const Tensor& bias = {}) {
  auto result = at::empty({left.size(0), right.size(1)}, left.options());
  multiply_matrices(left, right, bias, result);
  return result;
}

/// The results of the layers between for means, all [N, R] or [N, C].
struct GateValues {
  Tensor first, between, second, gates;

  static GateValues of(const Tensor& means, const SqueezeExciteLayers& layers) {
    auto first = product_of(means, as_matrix(layers.first_weight).t(), layers.first_bias);
    auto between = in_pieces(first.sizes(),
        [&](const auto& cut) { return activate(cut(first).clone(), layers.between); });
    auto second = product_of(between, as_matrix(layers.second_weight).t(), layers.second_bias);
    auto gates =
        in_pieces(second.sizes(), [&](const auto& cut) { return gated(cut(second), layers.gate); });
    return {std::move(first), std::move(between), std::move(second), std::move(gates)};
  }
};

// Of the activation between.
Tensor passed_back(const Tensor& gradient, const Tensor& seen, Activation between) {
  switch (between) {
    case Activation::kNone:
      return gradient;
    case Activation::kRelu:
      return at::threshold_backward(gradient, seen, 0);
    case Activation::kSilu:
      return at::silu_backward(gradient, seen);
    case Activation::kHardswish:
      return at::hardswish_backward(gradient, seen);
  }
  throw Error("squeeze_excite: an unknown activation");
}

// of [A, N] by [N, B], where the gradient of a weight [A, B, 1, 1] is to lie.
Tensor weight_product(const Tensor& outputs, const Tensor& inputs, const Tensor& weight) {
  auto result = empty_gradient(weight);
  multiply_matrices(outputs.t(), inputs, {}, result);
  return result;
}

struct GateGradients {
  Tensor means, first_weight, first_bias, second_weight, second_bias;

  /// Of the gates' gradient [N, C].
  static GateGradients of(const Tensor& gradient, const Tensor& means, const GateValues& values,
      const SqueezeExciteLayers& layers) {
    const auto of_second = in_pieces(gradient.sizes(), [&](const auto& cut) {
      return layers.gate == Gate::kSigmoid
                 ? at::sigmoid_backward(cut(gradient), cut(values.gates))
                 : at::hardsigmoid_backward(cut(gradient), cut(values.second));
    });
    const auto of_between = product_of(of_second, as_matrix(layers.second_weight));
    const auto of_first = in_pieces(of_between.sizes(), [&](const auto& cut) {
      return passed_back(cut(of_between), cut(values.first), layers.between);
    });
    return {product_of(of_first, as_matrix(layers.first_weight)),
        weight_product(of_first, means, layers.first_weight), of_first.sum(0),
        weight_product(of_second, values.between, layers.second_weight), of_second.sum(0)};
  }
};

/// The tensors that a backward needs, in the order in which they are saved.
struct SavedForExcitation {
  Tensor input, weight, bias;
  SqueezeExciteLayers layers;  ///< with its functions
  Activation activation;
  double eps;
  BatchNormAffine affine;
  Tensor mean;   ///< double [C]
  Tensor means;  ///< [N, C]
  GateValues values;

  void save(AutogradContext& context) const {
    context.save_for_backward(
        {input, weight, bias, layers.first_weight, layers.first_bias, layers.second_weight,
            layers.second_bias, affine.scale, affine.shift, affine.inverse_deviation, mean, means,
            values.first, values.between, values.second, values.gates});
    context.saved_data["between"] = static_cast<std::int64_t>(layers.between);
    context.saved_data["gate"] = static_cast<std::int64_t>(layers.gate);
    context.saved_data["activation"] = static_cast<std::int64_t>(activation);
    context.saved_data["eps"] = eps;
  }

  static SavedForExcitation of(AutogradContext& context) {
    const auto saved = context.get_saved_variables();
    const auto number = [&](const char* name) { return context.saved_data[name].toInt(); };
    return {saved[0], saved[1], saved[2],
        {saved[3], saved[4], saved[5], saved[6], static_cast<Activation>(number("between")),
            static_cast<Gate>(number("gate"))},
        static_cast<Activation>(number("activation")), context.saved_data["eps"].toDouble(),
        {saved[7], saved[8], saved[9]}, saved[10], saved[11],
        {saved[12], saved[13], saved[14], saved[15]}};
  }
};

ExcitedLayer layer_of(const Tensor& input) {
  return {.pixels = input.size(2) * input.size(3), .channels = input.size(1)};
}

// [N, C] of a layer [N, C, H, W].
Tensor values_an_image(const Tensor& input) {
  return at::empty({input.size(0), input.size(1)}, input.options());
}

/// Five sums an image and channel, [5, N, C].
class ImageSums {
 public:
  explicit ImageSums(const Tensor& input)
      : all_(at::empty({5, input.size(0), input.size(1)}, input.options())) {}

  ExcitationSums places() const {
    const std::int64_t values = all_.size(1) * all_.size(2);
    const auto place = [&](std::int64_t kind) { return to_floats(all_) + kind * values; };
    return {place(0), place(1), place(2), place(3), place(4)};
  }

  /// Returns the gates' gradient.
  Tensor of_gates() const { return all_[0]; }

  /// Returns what the norm's gradient sums over all images, double [2, C], if of each image a
  /// channel's gradient is multiplied by its gate and gets its share.
  Tensor of_norm(const Tensor& gates, const Tensor& shares) const {
    const std::int64_t images = all_.size(1), channels = all_.size(2);
    auto totals = doubles({2, channels}).zero_();
    auto* const gradients = totals.mutable_data_ptr<double>();
    auto* const products = gradients + channels;
    const float *const gate = floats(gates), *const share = floats(shares);
    const ExcitationSums sums = places();
    for (std::int64_t i = 0; i < images * channels; ++i) {
      gradients[i % channels] += gate[i] * sums.passed[i] + share[i] * sums.slopes[i];
      products[i % channels] +=
          gate[i] * sums.passed_products[i] + share[i] * sums.slope_products[i];
    }
    return totals;
  }

 private:
  Tensor all_;
};

/// Runs the kernels over one layer's input, [N, C, H, W] in channels-last order, on all threads.
struct ExcitePasses {
  const SqueezeExciteKernel& kernel;
  const SavedForExcitation& saved;

  /// Writes the means, and returns the values.
  Tensor squeezed() const {
    auto values =
        at::empty_like(saved.input, saved.input.options(), at::MemoryFormat::ChannelsLast);
    const SqueezeJob job{.layer = layer_of(saved.input),
        .activation = saved.activation,
        .inputs = floats(saved.input),
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .values = to_floats(values),
        .means = to_floats(saved.means)};
    in_parallel(saved.input.size(0), [&](Range images) { kernel.squeeze(job, images); });
    return values;
  }

  void excite(const Tensor& values) const {
    const ExciteJob job{.layer = layer_of(saved.input),
        .gates = floats(saved.values.gates),
        .values = to_floats(values)};
    in_parallel(saved.input.size(0), [&](Range images) { kernel.excite(job, images); });
  }

  ImageSums sums(const Tensor& gradient, const Tensor& mean, const Tensor& slopes) const {
    const ImageSums result(saved.input);
    const ExciteReduceJob job{.layer = layer_of(saved.input),
        .activation = saved.activation,
        .inputs = floats(saved.input),
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .gradients = floats(gradient),
        .slopes = to_floats(slopes),
        .sums = result.places()};
    in_parallel(saved.input.size(0), [&](Range images) { kernel.reduce(job, images); });
    return result;
  }

  void differentiate(const Tensor& gradient, const Tensor& mean, const Tensor& shares,
      const OfSums& of, const Tensor& slopes) const {
    const ExciteGradientJob job{.layer = layer_of(saved.input),
        .inputs = floats(saved.input),
        .mean = floats(mean),
        .gradients = floats(gradient),
        .gates = floats(saved.values.gates),
        .shares = floats(shares),
        .of_gradient = floats(of.of_gradient),
        .of_input = floats(of.of_input),
        .constant = floats(of.constant),
        .slopes = to_floats(slopes)};
    in_parallel(saved.input.size(0), [&](Range images) { kernel.differentiate(job, images); });
  }
};

// In the order of the function's arguments.
variable_list own_gradients(
    const SqueezeExciteKernel& kernel, const SavedForExcitation& saved, const Tensor& given) {
  const ExcitePasses passes{kernel, saved};
  const auto gradient = given.contiguous(at::MemoryFormat::ChannelsLast);
  const auto mean = saved.mean.to(at::kFloat);
  auto result = at::empty_like(saved.input, saved.input.options(), at::MemoryFormat::ChannelsLast);
  const ImageSums sums = passes.sums(gradient, mean, result);
  const auto layers = GateGradients::of(sums.of_gates(), saved.means, saved.values, saved.layers);
  const std::int64_t pixels = layer_of(saved.input).pixels;
  const auto shares = layers.means.div(pixels);
  const OfSums of = of_sums({.weight = saved.weight,
      .inverse_deviation = saved.affine.inverse_deviation,
      .mean = saved.mean,
      .rounded_mean = mean,
      .sums = sums.of_norm(saved.values.gates, shares),
      .count = saved.input.size(0) * pixels});
  passes.differentiate(gradient, mean, shares, of, result);
  return {result, of.weight, of.bias, layers.first_weight, layers.first_bias, layers.second_weight,
      layers.second_bias};
}

// Of LibTorch's operators, so that they can be differentiated again.
variable_list differentiable_gradients_of_excitation(
    const AutogradContext& context, const SavedForExcitation& saved, const Tensor& gradient) {
  const SqueezeExciteLayers& layers = saved.layers;
  return gradients_with_graph(
      context,
      {saved.input, saved.weight, saved.bias, layers.first_weight, layers.first_bias,
          layers.second_weight, layers.second_bias},
      [&](const variable_list& inputs) {
        const auto normed = std::get<0>(
            at::native_batch_norm(inputs[0], inputs[1], inputs[2], {}, {}, true, 0, saved.eps));
        return squeeze_excite(activate(normed.clone(), saved.activation),
            {inputs[3], inputs[4], inputs[5], inputs[6], layers.between, layers.gate});
      },
      gradient);
}

/// The arguments that autograd does not see.
struct ExcitationCall {
  const BatchNormArguments& norm;
  Activation activation;
  const SqueezeExciteLayers& layers;
  const SqueezeExciteKernel& kernel;
};

class OwnSqueezeExcite : public torch::autograd::Function<OwnSqueezeExcite> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
      const Tensor& bias, const Tensor& first_weight, const Tensor& first_bias,
      const Tensor& second_weight, const Tensor& second_bias, const ExcitationCall* call) {
    const BatchNormArguments& norm = call->norm;
    const auto statistics = statistics_of(*batch_norm_kernels().back(), input);
    if (norm.running_mean.defined())
      update_running(norm.running_mean, norm.running_var, statistics, norm.momentum);
    SavedForExcitation saved{.input = input,
        .weight = weight,
        .bias = bias,
        .layers = {first_weight, first_bias, second_weight, second_bias, call->layers.between,
            call->layers.gate},
        .activation = call->activation,
        .eps = norm.eps,
        .affine = affine_of(statistics, weight, bias, norm.eps),
        .mean = statistics.mean,
        .means = values_an_image(input),
        .values = {}};
    const ExcitePasses passes{call->kernel, saved};
    auto values = passes.squeezed();
    saved.values = GateValues::of(saved.means, saved.layers);
    passes.excite(values);
    saved.save(*context);
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(&call->kernel);
    return values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = SavedForExcitation::of(*context);
    const auto& kernel =
        *reinterpret_cast<const SqueezeExciteKernel*>(context->saved_data["kernel"].toInt());
    auto found = at::GradMode::is_enabled()
                     ? differentiable_gradients_of_excitation(*context, saved, gradients[0])
                     : own_gradients(kernel, saved, gradients[0]);
    found.emplace_back();  // the call
    return found;
  }
};

bool is_float_parameter(const Tensor& tensor, at::IntArrayRef sizes) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && is_readable(tensor) &&
         tensor.sizes() == sizes && tensor.is_contiguous();
}

}  // namespace

std::span<const SqueezeExciteKernel* const> squeeze_excite_kernels() {
  static const SqueezeExciteKernel* const kBuilds[] = {
      &squeeze_excite_plain(), &squeeze_excite_avx2(), &squeeze_excite_avx512()};
  return simd::usable(kBuilds);
}

bool is_squeeze_excite_own(const BatchNormArguments& norm, const SqueezeExciteLayers& layers) {
  if (!is_batch_norm_fused(norm, {}) || norm.input.scalar_type() != at::kFloat ||
      !layers.first_weight.defined() || layers.first_weight.dim() != 4)
    return false;
  const std::int64_t channels = norm.input.size(1), reduced = layers.first_weight.size(0);
  return reduced > 0 && is_float_parameter(layers.first_weight, {reduced, channels, 1, 1}) &&
         is_float_parameter(layers.first_bias, {reduced}) &&
         is_float_parameter(layers.second_weight, {channels, reduced, 1, 1}) &&
         is_float_parameter(layers.second_bias, {channels});
}

Tensor own_squeeze_excite(const SqueezeExciteKernel& kernel, const BatchNormArguments& norm,
    Activation activation, const SqueezeExciteLayers& layers) {
  const ExcitationCall call{norm, activation, layers, kernel};
  return OwnSqueezeExcite::apply(norm.input, norm.weight, norm.bias, layers.first_weight,
      layers.first_bias, layers.second_weight, layers.second_bias, &call);
}

Tensor excited_batch_norm(const BatchNormArguments& norm, const AfterBatchNorm& after) {
  static const SqueezeExciteKernel& fastest = *squeeze_excite_kernels().back();
  return own_squeeze_excite(fastest, norm, after.activation, *after.excitation);
}

Tensor squeeze_excite(const Tensor& values, const SqueezeExciteLayers& layers) {
  const auto first = at::conv2d(values.mean({2, 3}, true), layers.first_weight, layers.first_bias);
  const auto second =
      at::conv2d(activate(first, layers.between), layers.second_weight, layers.second_bias);
  return values * gated(second, layers.gate);
}

}  // namespace lockstep::nn::fused
