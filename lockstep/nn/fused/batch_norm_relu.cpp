#include "lockstep/nn/fused/batch_norm_relu.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/batch_statistics.h"
#include "lockstep/nn/fused/squeeze_excite.h"
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

/// Runs the kernels over one layer's input, [N, C, H, W] in channels-last order, on all threads.
/// Sums are those of fixed parts of the rows, added in order: the number of threads changes no bit.
struct BatchNormPasses {
  const BatchNormKernel& kernel;
  const at::Tensor& input;

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
    const bool has_addend = saved.output.defined(), is_float = input.scalar_type() == at::kFloat;
    const bool stores_passed = has_addend || (activation == Activation::kSilu && is_float);
    const auto gradient = given.contiguous(at::MemoryFormat::ChannelsLast);
    auto result = at::empty_like(input);
    auto passed = has_addend ? at::empty_like(input) : result;
    const auto mean = saved.mean.to(at::kFloat);
    const ReduceJob reduced{.rows = rows(),
        .activation = activation,
        .inputs = input.const_data_ptr(),
        .gradients = gradient.const_data_ptr(),
        .outputs = has_addend ? saved.output.const_data_ptr() : nullptr,
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .passed = stores_passed ? passed.mutable_data_ptr() : nullptr};
    PartialSums parts(kernel, row_count(), input.size(1));
    parts.compute([&](Range range, double* gradients, double* products, float* scratch) {
      kernel.reduce(reduced, range, {gradients, products}, scratch);
    });
    const auto [weight, bias, of_gradient, of_input, constant] = of_sums({.weight = saved.weight,
        .inverse_deviation = saved.affine.inverse_deviation,
        .mean = saved.mean,
        .rounded_mean = mean,
        .sums = parts.total(),
        .count = row_count()});
    const InputGradientJob job{.rows = rows(),
        .inputs = input.const_data_ptr(),
        .gradients = stores_passed ? passed.const_data_ptr() : gradient.const_data_ptr(),
        .activation = stores_passed ? Activation::kNone : activation,
        .scale = floats(saved.affine.scale),
        .shift = floats(saved.affine.shift),
        .mean = floats(mean),
        .of_gradient = floats(of_gradient),
        .of_input = floats(of_input),
        .constant = floats(constant),
        .input_gradients = result.mutable_data_ptr()};
    in_parallel(row_count(), [&](Range range) { kernel.differentiate(job, range); });
    return {result, weight, bias, has_addend ? passed : at::Tensor()};
  }

 private:
  std::int64_t row_count() const { return input.numel() / input.size(1); }
  PixelRows rows() const { return pixel_rows_of(input); }
};

bool is_layer_value(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return is_readable(tensor) && tensor.dim() == 4 &&
         (type == at::kFloat || type == at::kBFloat16) && tensor.numel() > tensor.size(1) &&
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_value_a_channel(const at::Tensor& tensor, std::int64_t channels) {
  return tensor.defined() && is_readable(tensor) && tensor.scalar_type() == at::kFloat &&
         tensor.dim() == 1 && tensor.size(0) == channels && tensor.is_contiguous();
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
    const auto statistics = statistics_of(*kernel, input);
    if (running_mean) update_running(*running_mean, *running_var, statistics, momentum);
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

bool are_computed_at_once(const BatchNormArguments& norm, const AfterBatchNorm& after) {
  return after.excitation != nullptr ? is_squeeze_excite_own(norm, *after.excitation)
                                     : is_batch_norm_fused(norm, after.addend);
}

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
  const bool is_ours =
      training && kernels_in_use() != Kernels::kLibTorch && are_computed_at_once(arguments, after);
  if (!is_ours)
    return at::native::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  static const BatchNormKernel& fastest = *batch_norm_kernels().back();
  auto result = after.excitation != nullptr ? excited_batch_norm(arguments, after)
                                            : fused_batch_norm(fastest, arguments, after);
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
