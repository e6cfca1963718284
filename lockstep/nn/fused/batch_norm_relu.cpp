#include "lockstep/nn/fused/batch_norm_relu.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

// Note [Batch norm before ReLU]
//
// Batch norm in training is ours wherever it covers a call. A block computes
// relu(norm(x) + shortcut) by three operators. It says beforehand, for its thread, that an addend
// and ReLU follow the next batch norm, or another activation; LibTorch's layer then does all that
// it does in training, and the operator that it calls at last is ours (see Note [Operators of any
// module]). Operator rules stand above: what they compute without that operator, such as batch norm
// over all ranks, leaves the announcement unread, and the block adds and rectifies by itself.
namespace lockstep::nn::fused {
namespace {

/// Mean and sum of squared deviations of each channel, over `count` values; double [C].
struct BatchStatistics {
  at::Tensor mean, squares;
  std::int64_t count;
};

/// The factor and the addend of batch norm; float [C].
struct BatchNormAffine {
  at::Tensor scale, shift, inverse_deviation;
};

/// The tensors that a backward needs, in the order in which they are saved.
struct SavedForBackward {
  at::Tensor input, weight, bias;
  BatchNormAffine affine;
  at::Tensor mean;    ///< double [C]
  at::Tensor output;  ///< only if there was an addend

  torch::autograd::variable_list list() const {
    return {
        input, weight, bias, affine.scale, affine.shift, affine.inverse_deviation, mean, output};
  }
  static SavedForBackward of(const torch::autograd::variable_list& saved) {
    return {saved[0], saved[1], saved[2], {saved[3], saved[4], saved[5]}, saved[6], saved[7]};
  }
};

struct BatchNormGradients {
  at::Tensor input, weight, bias, addend;
};

constexpr std::int64_t kRowsOfAPart = 256, kMostParts = 32;

std::int64_t parts_of(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsOfAPart, 1, kMostParts);
}

Range part_at(std::int64_t part, std::int64_t parts, std::int64_t rows) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

at::Tensor doubles(at::IntArrayRef sizes) { return at::empty(sizes, on_host(at::kDouble)); }

// What is computed for a channel takes loops below: operators of so few values mostly call.
at::Tensor new_floats(std::int64_t channels) { return at::empty({channels}, on_host(at::kFloat)); }

const float* floats(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }
float* to_floats(const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }

/// Two sums a channel of each part, [parts, 2, C].
class PartialSums {
 public:
  PartialSums(const BatchNormKernel& kernel, std::int64_t rows, std::int64_t channels)
      : kernel_(kernel),
        rows_(rows),
        channels_(channels),
        parts_(parts_of(rows)),
        memory_(doubles({parts_, 2, channels})) {}

  using Body = c10::function_ref<void(Range, double*, double*, float*)>;

  void compute(Body body) {
    auto* const data = memory_.mutable_data_ptr<double>();
    in_parallel(parts_, [&](Range parts) {
      auto scratch = at::empty({kernel_.scratch_floats(channels_)}, on_host(at::kFloat));
      for (std::int64_t part = parts.begin; part < parts.end; ++part) {
        double* const first = data + part * 2 * channels_;
        body(part_at(part, parts_, rows_), first, first + channels_,
            scratch.mutable_data_ptr<float>());
      }
    });
  }

  /// Returns [2, C], added in order.
  at::Tensor total() const {
    auto sums = doubles({2, channels_}).zero_();
    auto* const to = sums.mutable_data_ptr<double>();
    for (std::int64_t part = 0; part < parts_; ++part)
      for (std::int64_t i = 0; i < 2 * channels_; ++i) to[i] += first(part)[i];
    return sums;
  }

  std::int64_t parts() const { return parts_; }
  std::int64_t rows_of(std::int64_t part) const {
    const Range range = part_at(part, parts_, rows_);
    return range.end - range.begin;
  }
  const double* first(std::int64_t part) const {
    return memory_.const_data_ptr<double>() + part * 2 * channels_;
  }
  const double* second(std::int64_t part) const { return first(part) + channels_; }

 private:
  const BatchNormKernel& kernel_;
  std::int64_t rows_, channels_, parts_;
  at::Tensor memory_;
};

// By Chan's formulas.
void merge(const PartialSums& sums, std::int64_t part, std::int64_t before, std::int64_t channels,
    double* mean, double* squares) {
  const auto own = static_cast<double>(sums.rows_of(part)), others = static_cast<double>(before);
  const double weight = own / (own + others);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double delta = sums.first(part)[channel] - mean[channel];
    mean[channel] += delta * weight;
    squares[channel] += sums.second(part)[channel] + delta * delta * others * weight;
  }
}

/// The results of a backward pass's sums, float [C] each: the gradients of weight and bias, and
/// that of the input = passed * of_gradient + (input - mean) * of_input + constant.
struct OfSums {
  at::Tensor weight, bias, of_gradient, of_input, constant;
};

OfSums of_sums(const SavedForBackward& saved, const at::Tensor& sums,
    const at::Tensor& rounded_mean, std::int64_t count) {
  const std::int64_t channels = rounded_mean.numel();
  const OfSums result{new_floats(channels), new_floats(channels), new_floats(channels),
      new_floats(channels), new_floats(channels)};
  const double* const gradients = sums.const_data_ptr<double>();
  const double* const products = gradients + channels;
  const double* const mean = saved.mean.const_data_ptr<double>();
  const float *const rounded = floats(rounded_mean), *const factor = floats(saved.weight),
                     *const inverses = floats(saved.affine.inverse_deviation);
  float *const weight = to_floats(result.weight), *const bias = to_floats(result.bias),
               *const of_gradient = to_floats(result.of_gradient),
               *const of_input = to_floats(result.of_input),
               *const constant = to_floats(result.constant);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double inverse = inverses[channel], scale = factor[channel] * inverse;
    const double off = mean[channel] - rounded[channel];
    const double product = products[channel] - gradients[channel] * off;
    const double slope = -scale * inverse * inverse * product / static_cast<double>(count);
    const double share = -scale * gradients[channel] / static_cast<double>(count);
    weight[channel] = static_cast<float>(product * inverse);
    bias[channel] = static_cast<float>(gradients[channel]);
    of_gradient[channel] = static_cast<float>(scale);
    of_input[channel] = static_cast<float>(slope);
    constant[channel] = static_cast<float>(share - slope * off);
  }
  return result;
}

BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps) {
  const std::int64_t channels = weight.numel();
  const BatchNormAffine result{new_floats(channels), new_floats(channels), new_floats(channels)};
  const double *const mean = statistics.mean.const_data_ptr<double>(),
                      *const squares = statistics.squares.const_data_ptr<double>();
  const float *const factor = floats(weight), *const addend = floats(bias);
  float *const scale = to_floats(result.scale), *const shift = to_floats(result.shift),
               *const inverses = to_floats(result.inverse_deviation);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double variance = squares[channel] / static_cast<double>(statistics.count);
    const double inverse = 1 / std::sqrt(variance + eps), wide = factor[channel] * inverse;
    inverses[channel] = static_cast<float>(inverse);
    scale[channel] = static_cast<float>(wide);
    shift[channel] = static_cast<float>(addend[channel] - mean[channel] * wide);
  }
  return result;
}

/// Runs the kernels over one layer's input, [N, C, H, W] in channels-last order, on all threads.
/// Sums are those of fixed parts of the rows, added in order: the number of threads changes no bit.
struct BatchNormPasses {
  const BatchNormKernel& kernel;
  const at::Tensor& input;

  BatchStatistics statistics() const {
    const std::int64_t channels = input.size(1);
    PartialSums sums(kernel, row_count(), channels);
    sums.compute([&](Range range, double* mean, double* squares, float* scratch) {
      kernel.collect(rows(), input.const_data_ptr(), range, {mean, squares}, scratch);
    });
    auto mean = doubles({channels}).zero_(), squares = doubles({channels}).zero_();
    std::int64_t before = 0;
    for (std::int64_t part = 0; part < sums.parts(); before += sums.rows_of(part++))
      merge(sums, part, before, channels, mean.mutable_data_ptr<double>(),
          squares.mutable_data_ptr<double>());
    return {mean, squares, row_count()};
  }

  at::Tensor normalised(
      const BatchNormAffine& affine, const at::Tensor& addend, Activation activation) const {
    auto output = at::empty_like(input, input.options(), at::MemoryFormat::ChannelsLast);
    const NormaliseJob job{.rows = rows(),
        .inputs = input.const_data_ptr(),
        .addends = addend.defined() ? addend.const_data_ptr() : nullptr,
        .activation = activation,
        .scale = floats(affine.scale),
        .shift = floats(affine.shift),
        .outputs = output.mutable_data_ptr()};
    in_parallel(row_count(), [&](Range range) { kernel.normalise(job, range); });
    return output;
  }

  BatchNormGradients gradients(
      const SavedForBackward& saved, const at::Tensor& given, Activation activation) const {
    const bool has_addend = saved.output.defined();
    const auto gradient = given.contiguous(at::MemoryFormat::ChannelsLast);
    auto passed = has_addend ? at::empty_like(input) : at::Tensor();
    const auto mean = saved.mean.to(at::kFloat);
    const ReduceJob reduced{.rows = rows(),
        .activation = activation,
        .inputs = input.const_data_ptr(),
        .gradients = gradient.const_data_ptr(),
        .outputs = has_addend ? saved.output.const_data_ptr() : nullptr,
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .passed = has_addend ? passed.mutable_data_ptr() : nullptr};
    PartialSums parts(kernel, row_count(), input.size(1));
    parts.compute([&](Range range, double* gradients, double* products, float* scratch) {
      kernel.reduce(reduced, range, {gradients, products}, scratch);
    });
    const auto [weight, bias, of_gradient, of_input, constant] =
        of_sums(saved, parts.total(), mean, row_count());
    auto result = at::empty_like(input);
    const InputGradientJob job{.rows = rows(),
        .inputs = input.const_data_ptr(),
        .gradients = has_addend ? passed.const_data_ptr() : gradient.const_data_ptr(),
        .activation = has_addend ? Activation::kNone : activation,
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .of_gradient = floats(of_gradient),
        .of_input = floats(of_input),
        .constant = floats(constant),
        .input_gradients = result.mutable_data_ptr()};
    in_parallel(row_count(), [&](Range range) { kernel.differentiate(job, range); });
    return {result, weight, bias, passed};
  }

  /// Moves running statistics towards a batch's, the variance unbiased. Their versions stay, as
  /// LibTorch's do: a graph of an earlier call that saved them can still run backward.
  void update(const at::Tensor& running_mean, const at::Tensor& running_var,
      const BatchStatistics& statistics, double momentum) const {
    const auto move = [&](const at::Tensor& running, const at::Tensor& batch, double share) {
      const auto* const values = batch.const_data_ptr<double>();
      float* const moved = to_floats(running);
      for (std::int64_t channel = 0; channel < running.numel(); ++channel)
        moved[channel] = static_cast<float>(
            moved[channel] * (1 - momentum) + values[channel] * share * momentum);
    };
    move(running_mean, statistics.mean, 1);
    move(running_var, statistics.squares, 1 / static_cast<double>(statistics.count - 1));
  }

 private:
  std::int64_t row_count() const { return input.numel() / input.size(1); }
  PixelRows rows() const {
    const bool is_float = input.scalar_type() == at::kFloat;
    return {is_float ? Element::kFloat : Element::kBFloat16, input.size(1)};
  }
};

bool is_layer_value(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == 4 &&
         (type == at::kFloat || type == at::kBFloat16) && tensor.numel() > tensor.size(1) &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor._fw_grad(0).defined();
}

bool is_value_a_channel(const at::Tensor& tensor, std::int64_t channels) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.dim() == 1 && tensor.size(0) == channels && tensor.is_contiguous() &&
         !tensor._fw_grad(0).defined();
}

// The gradient in front of the activation. The slopes of some depend on the input.
at::Tensor passed_back(
    const SavedForBackward& saved, const at::Tensor& gradient, Activation activation, double eps) {
  if (activation == Activation::kNone) return gradient;
  if (saved.output.defined())
    return at::threshold_backward(gradient, saved.output.detach().to(at::kFloat), 0);
  const auto seen = std::get<0>(at::native_batch_norm(
      saved.input.to(at::kFloat), saved.weight, saved.bias, {}, {}, true, 0, eps));
  return torch::autograd::grad(
      {activate(seen.clone(), activation)}, {seen}, {gradient}, true, true)[0];
}

// Of LibTorch's operators, so that they can be differentiated again; in float, which all know.
BatchNormGradients differentiable_gradients(
    const SavedForBackward& saved, const at::Tensor& gradient, Activation activation, double eps) {
  const auto type = saved.input.scalar_type();
  const auto passed = passed_back(saved, gradient.to(at::kFloat), activation, eps);
  const auto [input, weight, bias] =
      at::native_batch_norm_backward(passed, saved.input.to(at::kFloat), saved.weight, {}, {},
          saved.mean.to(at::kFloat), saved.affine.inverse_deviation, true, eps, {true, true, true});
  return {input.to(type), weight, bias, saved.output.defined() ? passed.to(type) : at::Tensor()};
}

class FusedBatchNorm : public torch::autograd::Function<FusedBatchNorm> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
      const at::Tensor& weight, const at::Tensor& bias, const std::optional<at::Tensor>& addend,
      const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var,
      double momentum, double eps, Activation activation, const BatchNormKernel* kernel) {
    const BatchNormPasses passes{*kernel, input};
    const auto statistics = passes.statistics();
    if (running_mean) passes.update(*running_mean, *running_var, statistics, momentum);
    const auto affine = affine_of(statistics, weight, bias, eps);
    auto output = passes.normalised(affine, addend.value_or(at::Tensor()), activation);
    const SavedForBackward saved{
        input, weight, bias, affine, statistics.mean, addend ? output : at::Tensor()};
    context->save_for_backward(saved.list());
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    context->saved_data["eps"] = eps;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = SavedForBackward::of(context->get_saved_variables());
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const auto found = at::GradMode::is_enabled()
                           ? differentiable_gradients(saved, gradients[0], activation,
                                 context->saved_data["eps"].toDouble())
                           : own_gradients(*context, saved, gradients[0], activation);
    return {found.input, found.weight, found.bias, found.addend, {}, {}, {}, {}, {}, {}};
  }

 private:
  static BatchNormGradients own_gradients(torch::autograd::AutogradContext& context,
      const SavedForBackward& saved, const at::Tensor& gradient, Activation activation) {
    const auto& kernel =
        *reinterpret_cast<const BatchNormKernel*>(context.saved_data["kernel"].toInt());
    return BatchNormPasses{kernel, saved.input}.gradients(saved, gradient, activation);
  }
};

/// The operators behind the next batch norm of this thread.
class Following {
 public:
  explicit Following(const AfterBatchNorm& after)
      : after_(after), before_(std::exchange(current(), this)) {}
  ~Following() { current() = before_; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  static Following*& current() {
    static thread_local Following* newest = nullptr;
    return newest;
  }

  const AfterBatchNorm& after() const { return after_; }
  const at::Tensor& result() const { return result_; }
  void set_result(at::Tensor result) { result_ = std::move(result); }

 private:
  const AfterBatchNorm& after_;
  Following* before_;
  at::Tensor result_;
};

at::Tensor given(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

}  // namespace

std::span<const BatchNormKernel* const> batch_norm_kernels() {
  static const BatchNormKernel* const kBuilds[] = {
      &batch_norm_plain(), &batch_norm_avx2(), &batch_norm_avx512()};
  return simd::usable(kBuilds);
}

bool is_batch_norm_fused(const BatchNormArguments& given, const at::Tensor& addend) {
  if (!given.input.defined() || !is_layer_value(given.input)) return false;
  const std::int64_t channels = given.input.size(1);
  const bool has_statistics = given.running_mean.defined() || given.running_var.defined();
  const bool fits =
      !addend.defined() || (is_layer_value(addend) && addend.sizes() == given.input.sizes() &&
                               addend.scalar_type() == given.input.scalar_type());
  return fits && is_value_a_channel(given.weight, channels) &&
         is_value_a_channel(given.bias, channels) &&
         (!has_statistics || (is_value_a_channel(given.running_mean, channels) &&
                                 is_value_a_channel(given.running_var, channels)));
}

at::Tensor fused_batch_norm(
    const BatchNormKernel& kernel, const BatchNormArguments& given, const AfterBatchNorm& after) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return FusedBatchNorm::apply(given.input, given.weight, given.bias, optional(after.addend),
      optional(given.running_mean), optional(given.running_var), given.momentum, given.eps,
      after.activation, &kernel);
}

at::Tensor dispatched_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  // An announcement is for one batch norm.
  Following* following = Following::current();
  if (following != nullptr && following->result().defined()) following = nullptr;
  const AfterBatchNorm after = following != nullptr ? following->after() : AfterBatchNorm{};
  const BatchNormArguments arguments{.input = input,
      .weight = given(weight),
      .bias = given(bias),
      .running_mean = given(running_mean),
      .running_var = given(running_var),
      .momentum = momentum,
      .eps = eps};
  const bool is_ours = training && kernels_in_use() != Kernels::kLibTorch &&
                       is_batch_norm_fused(arguments, after.addend);
  if (!is_ours)
    return at::native::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  static const BatchNormKernel& fastest = *batch_norm_kernels().back();
  auto result = fused_batch_norm(fastest, arguments, after);
  if (following != nullptr) following->set_result(result);
  return result;
}

BatchNormResult batch_norm_before(
    const AfterBatchNorm& after, c10::function_ref<at::Tensor()> norm) {
  Following following(after);
  auto maps = norm();
  const bool is_activated = following.result().is_same(maps);
  if (following.result().defined() && !is_activated)
    throw Error("batch_norm_relu: a rule for batch norm changes what the layer's operator gives");
  return {std::move(maps), is_activated};
}

at::Tensor activate(at::Tensor maps, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return maps;
    case Activation::kRelu:
      return maps.relu_();
    case Activation::kSilu:
      return at::silu_(maps);
    case Activation::kHardswish:
      return at::hardswish_(maps);
  }
  throw Error("batch_norm_relu: an unknown activation");
}

at::Tensor batch_norm_relu(
    torch::nn::BatchNorm2d& norm, const at::Tensor& input, const at::Tensor& addend) {
  auto [maps, is_activated] =
      batch_norm_before({Activation::kRelu, addend}, [&] { return norm->forward(input); });
  if (is_activated) return maps;
  if (addend.defined()) maps.add_(addend);
  return activate(std::move(maps), Activation::kRelu);
}

}  // namespace lockstep::nn::fused
