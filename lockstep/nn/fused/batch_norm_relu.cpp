#include "lockstep/nn/fused/batch_norm_relu.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/simd/instructions.h"

// Note [Batch norm before ReLU]
//
// Batch norm in training is ours wherever it covers a call. A block computes
// relu(norm(x) + shortcut) by three operators. It says beforehand, for its thread, that an addend
// and ReLU follow the next batch norm; LibTorch's layer then does all that it does in training, and
// the operator that it calls at last is ours (see Note [Operators of any module]).
// Operator rules stand above: what they compute without that operator, such as batch norm over all
// ranks, leaves the announcement unread, and the block adds and rectifies by itself.
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
  at::Tensor input, weight;
  BatchNormAffine affine;
  at::Tensor mean;    ///< double [C]
  at::Tensor output;  ///< only if there was an addend

  torch::autograd::variable_list list() const {
    return {input, weight, affine.scale, affine.shift, affine.inverse_deviation, mean, output};
  }
  static SavedForBackward of(const torch::autograd::variable_list& saved) {
    return {saved[0], saved[1], {saved[2], saved[3], saved[4]}, saved[5], saved[6]};
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

const float* floats(const at::Tensor& tensor) { return tensor.const_data_ptr<float>(); }

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
    auto sums = memory_[0].clone();
    for (std::int64_t part = 1; part < parts_; ++part) sums += memory_[part];
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

// gradient = passed * of_gradient + (input - mean) * of_input + constant, float [C] each.
struct InputGradientFactors {
  at::Tensor of_gradient, of_input, constant;
};

InputGradientFactors factors_of(const SavedForBackward& saved, const at::Tensor& gradients,
    const at::Tensor& products, const at::Tensor& rounded_mean, std::int64_t count) {
  const auto inverse = saved.affine.inverse_deviation.to(at::kDouble);
  const auto scale = saved.weight.to(at::kDouble) * inverse;
  const auto of_input = -scale * inverse.square() * products / static_cast<double>(count);
  const auto constant =
      -scale * gradients / static_cast<double>(count) - of_input * (saved.mean - rounded_mean);
  return {scale.to(at::kFloat), of_input.to(at::kFloat), constant.to(at::kFloat)};
}

BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps) {
  const auto variance = statistics.squares / static_cast<double>(statistics.count);
  const auto inverse = (variance + eps).rsqrt();
  const auto scale = weight.to(at::kDouble) * inverse;
  const auto shift = bias.to(at::kDouble) - statistics.mean * scale;
  return {scale.to(at::kFloat), shift.to(at::kFloat), inverse.to(at::kFloat)};
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
      const BatchNormAffine& affine, const at::Tensor& addend, bool rectifies) const {
    auto output = at::empty_like(input, input.options(), at::MemoryFormat::ChannelsLast);
    const NormaliseJob job{.rows = rows(),
        .inputs = input.const_data_ptr(),
        .addends = addend.defined() ? addend.const_data_ptr() : nullptr,
        .rectifies = rectifies,
        .scale = floats(affine.scale),
        .shift = floats(affine.shift),
        .outputs = output.mutable_data_ptr()};
    in_parallel(row_count(), [&](Range range) { kernel.normalise(job, range); });
    return output;
  }

  BatchNormGradients gradients(
      const SavedForBackward& saved, const at::Tensor& given, bool rectifies) const {
    const bool has_addend = saved.output.defined();
    const Passing by_relu = has_addend ? Passing::kByOutputs : Passing::kByInputs;
    const auto gradient = given.contiguous(at::MemoryFormat::ChannelsLast);
    auto passed = has_addend ? at::empty_like(input) : at::Tensor();
    const auto mean = saved.mean.to(at::kFloat);
    const ReduceJob reduced{.rows = rows(),
        .passing = rectifies ? by_relu : Passing::kAll,
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
    const auto sums = parts.total();
    sums[1] -= sums[0] * (saved.mean - mean);  // what the float is off by
    const auto factors = factors_of(saved, sums[0], sums[1], mean, row_count());
    auto result = at::empty_like(input);
    const InputGradientJob job{.rows = rows(),
        .inputs = input.const_data_ptr(),
        .gradients = has_addend ? passed.const_data_ptr() : gradient.const_data_ptr(),
        .have_passed = has_addend || !rectifies,
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .of_gradient = floats(factors.of_gradient),
        .of_input = floats(factors.of_input),
        .constant = floats(factors.constant),
        .input_gradients = result.mutable_data_ptr()};
    in_parallel(row_count(), [&](Range range) { kernel.differentiate(job, range); });
    const auto weight = sums[1] * saved.affine.inverse_deviation.to(at::kDouble);
    return {result, weight.to(at::kFloat), sums[0].to(at::kFloat), passed};
  }

  /// Moves running statistics towards a batch's, the variance unbiased. Their versions stay, as
  /// LibTorch's do: a graph of an earlier call that saved them can still run backward.
  void update(const at::Tensor& running_mean, const at::Tensor& running_var,
      const BatchStatistics& statistics, double momentum) const {
    const at::AutoDispatchBelowADInplaceOrView without_new_versions;
    const auto variance = statistics.squares / static_cast<double>(statistics.count - 1);
    running_mean.mul_(1 - momentum).add_(statistics.mean.to(at::kFloat), momentum);
    running_var.mul_(1 - momentum).add_(variance.to(at::kFloat), momentum);
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

// Positive where ReLU lets a value pass.
at::Tensor before_relu(const SavedForBackward& saved) {
  if (saved.output.defined()) return saved.output.detach();
  const auto along = [](const at::Tensor& values) { return values.view({1, -1, 1, 1}); };
  return saved.input.detach() * along(saved.affine.scale) + along(saved.affine.shift);
}

// Of LibTorch's operators, so that they can be differentiated again; in float, which all know.
BatchNormGradients differentiable_gradients(
    const SavedForBackward& saved, const at::Tensor& gradient, bool rectifies, double eps) {
  const auto type = saved.input.scalar_type();
  auto passed = gradient.to(at::kFloat);
  if (rectifies) passed = at::threshold_backward(passed, before_relu(saved).to(at::kFloat), 0);
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
      double momentum, double eps, bool rectifies, const BatchNormKernel* kernel) {
    const BatchNormPasses passes{*kernel, input};
    const auto statistics = passes.statistics();
    if (running_mean) passes.update(*running_mean, *running_var, statistics, momentum);
    const auto affine = affine_of(statistics, weight, bias, eps);
    auto output = passes.normalised(affine, addend.value_or(at::Tensor()), rectifies);
    const SavedForBackward saved{
        input, weight, affine, statistics.mean, addend ? output : at::Tensor()};
    context->save_for_backward(saved.list());
    context->saved_data["rectifies"] = rectifies;
    context->saved_data["eps"] = eps;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return output;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const auto saved = SavedForBackward::of(context->get_saved_variables());
    const bool rectifies = context->saved_data["rectifies"].toBool();
    const auto found = at::GradMode::is_enabled()
                           ? differentiable_gradients(saved, gradients[0], rectifies,
                                 context->saved_data["eps"].toDouble())
                           : own_gradients(*context, saved, gradients[0], rectifies);
    return {found.input, found.weight, found.bias, found.addend, {}, {}, {}, {}, {}, {}};
  }

 private:
  static BatchNormGradients own_gradients(torch::autograd::AutogradContext& context,
      const SavedForBackward& saved, const at::Tensor& gradient, bool rectifies) {
    const auto& kernel =
        *reinterpret_cast<const BatchNormKernel*>(context.saved_data["kernel"].toInt());
    return BatchNormPasses{kernel, saved.input}.gradients(saved, gradient, rectifies);
  }
};

/// The operators behind the next batch norm of this thread.
class Following {
 public:
  explicit Following(const at::Tensor& addend)
      : addend_(addend), before_(std::exchange(current(), this)) {}
  ~Following() { current() = before_; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  static Following*& current() {
    static thread_local Following* newest = nullptr;
    return newest;
  }

  const at::Tensor& addend() const { return addend_; }
  const at::Tensor& result() const { return result_; }
  void set_result(at::Tensor result) { result_ = std::move(result); }

 private:
  const at::Tensor& addend_;
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
      after.rectifies, &kernel);
}

at::Tensor dispatched_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  // An announcement is for one batch norm.
  Following* following = Following::current();
  if (following != nullptr && following->result().defined()) following = nullptr;
  const AfterBatchNorm after{.rectifies = following != nullptr,
      .addend = following != nullptr ? following->addend() : at::Tensor()};
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

BatchNormResult batch_norm_before_relu(
    c10::function_ref<at::Tensor()> norm, const at::Tensor& addend) {
  Following following(addend);
  auto maps = norm();
  const bool is_rectified = following.result().is_same(maps);
  if (following.result().defined() && !is_rectified)
    throw Error("batch_norm_relu: a rule for batch norm changes what the layer's operator gives");
  return {std::move(maps), is_rectified};
}

at::Tensor batch_norm_relu(
    torch::nn::BatchNorm2d& norm, const at::Tensor& input, const at::Tensor& addend) {
  auto [maps, is_rectified] = batch_norm_before_relu([&] { return norm->forward(input); }, addend);
  if (is_rectified) return maps;
  if (addend.defined()) maps.add_(addend);
  return maps.relu_();
}

}  // namespace lockstep::nn::fused
