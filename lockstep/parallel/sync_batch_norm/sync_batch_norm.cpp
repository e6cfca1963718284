#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/custom_class.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The statistics of each channel of a batch, enough to merge several batches.
struct ChannelStatistics {
  torch::Tensor count;    ///< double [1]: values a channel
  torch::Tensor mean;     ///< double [C]
  torch::Tensor squares;  ///< double [C]: sum of squared deviations from the mean
};

bool is_half(const torch::Tensor& input) {
  return input.scalar_type() == torch::kHalf || input.scalar_type() == torch::kBFloat16;
}

/// Returns mean and biased variance by the kernel of batch norm itself, which knows all memory
/// formats.
std::tuple<torch::Tensor, torch::Tensor> mean_and_variance(const torch::Tensor& input) {
  if (!is_half(input)) return at::batch_norm_update_stats(input, {}, {}, 0);
  // Statistics come in the type of the running ones: without any, they would be halves.
  const auto running = at::zeros({input.size(1)}, input.options().dtype(torch::kFloat));
  return at::batch_norm_update_stats(input, running, running.clone(), 0);
}

std::int64_t values_per_channel(const torch::Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

// Of a batch [N, C, ...], which may be empty.
ChannelStatistics channel_statistics(const torch::Tensor& input) {
  const auto count = values_per_channel(input);
  const auto options = input.options().dtype(torch::kDouble);
  const auto counts = at::full({1}, static_cast<double>(count), options);
  if (count == 0) {
    return {counts, at::zeros({input.size(1)}, options), at::zeros({input.size(1)}, options)};
  }
  const auto [mean, variance] = mean_and_variance(input);
  return {counts, mean.to(torch::kDouble), variance.to(torch::kDouble) * counts};
}

// Reads rows [W, 2 C + 1] as the statistics of all W batches together. Merging deviations instead
// of sums of squares keeps the variance of values far from zero.
ChannelStatistics merge_rows(const torch::Tensor& rows) {
  const auto channels = (rows.size(1) - 1) / 2;
  const auto counts = rows.narrow(1, 0, 1);
  const auto means = rows.narrow(1, 1, channels);
  const auto squares = rows.narrow(1, 1 + channels, channels);
  const auto count = counts.sum(0);
  const auto mean = (counts * means).sum(0) / count;
  return {count, mean, (squares + counts * (means - mean).square()).sum(0)};
}

/// A layer's state apart from the inputs of its gradients.
struct Layer {
  const Tensor& running_mean;
  const Tensor& running_var;
  double momentum;
  double eps;
  const ProcessGroup& group;
};

/// Carries a group through what autograd saves.
struct SavedGroup final : torch::CustomClassHolder {
  explicit SavedGroup(ProcessGroup saved) : group(std::move(saved)) {}
  ProcessGroup group;
};

at::ScalarType type_of_statistics(const Tensor& input) {
  return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

ChannelStatistics of_all_ranks(const Tensor& input, const ProcessGroup& group) {
  const auto statistics = channel_statistics(input);
  const auto own = at::cat({statistics.count, statistics.mean, statistics.squares});
  const auto rows = at::empty({group.size(), own.size(0)}, own.options());
  group.all_gather(rows.view({-1}), own).wait();
  const auto all = merge_rows(rows);
  // With two values there is no need to ask, and to wait for an accelerator.
  check(values_per_channel(input) > 1 || all.count.item<double>() > 1,
      "sync_batch_norm: all ranks together need more than one value a channel, input ",
      input.sizes(), " on ", group.size(), " ranks");
  return all;
}

// Without a new version, as LibTorch's batch norm: graphs of earlier calls may have saved them.
void update(const Tensor& running, const Tensor& now, double momentum) {
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  if (running.defined()) running.mul_(1 - momentum).add_(now.to(running.scalar_type()), momentum);
}

/// Lays values of channels along the second dimension of a tensor.
Tensor along_channels(const Tensor& values, const Tensor& like) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = values.size(0);
  return values.to(like.scalar_type()).view(sizes);
}

/// Normalises by given statistics, as batch norm in evaluation does.
Tensor normalise(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
    const Tensor& variance, double eps) {
  if (values_per_channel(input) == 0) return at::empty_like(input);  // LibTorch divides by it
  const auto in_type = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.to(mean.scalar_type()) : tensor;
  };
  return std::get<0>(
      at::native_batch_norm(input, in_type(weight), in_type(bias), mean, variance, false, 0, eps));
}

/// Returns s w g, this rank's dw and its db, in the terms of the note below.
std::tuple<Tensor, Tensor, Tensor> gradients_by_given_statistics(const Tensor& gradient,
    const Tensor& input, const Tensor& weight, const Tensor& mean, const Tensor& variance,
    double eps) {
  if (values_per_channel(input) == 0) {
    return {at::empty_like(input), at::zeros_like(mean), at::zeros_like(mean)};
  }
  return at::native_batch_norm_backward(
      gradient, input, weight, mean, variance, {}, {}, false, eps, {true, true, true});
}

// Note [Gradient of synchronised batch norm]
// With y = (x - mean) s w + b, s = 1 / sqrt(variance + eps), n values a channel on all ranks, and g
// the gradient of y, sums taken over all ranks:
//
//     dx = s w (g - sum(g) / n - (x - mean) s^2 sum(g (x - mean)) / n)
//     dw = s sum(g (x - mean))    db = sum(g)     of this rank: the wrapper averages them
//
// LibTorch's backward in evaluation gives s w g, dw and db in one pass.
struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
      const std::optional<Tensor>& weight, const std::optional<Tensor>& bias, const Layer& layer) {
    const auto all = of_all_ranks(input, layer.group);
    update(layer.running_mean, all.mean, layer.momentum);
    update(layer.running_var, all.squares / (all.count - 1), layer.momentum);
    const auto type = type_of_statistics(input);
    const auto mean = all.mean.to(type), variance = (all.squares / all.count).to(type);
    context->save_for_backward({input, weight.value_or(Tensor()), mean, variance, all.count});
    context->saved_data["eps"] = layer.eps;
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedGroup>(layer.group));
    return normalise(
        input, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, variance, layer.eps);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients);
};

variable_list SyncBatchNormFunction::backward(AutogradContext* context, variable_list gradients) {
  if (torch::GradMode::is_enabled()) {
    throw Error("sync_batch_norm: a second derivative (create_graph) is not supported");
  }
  const auto saved = context->get_saved_variables();
  const auto &weight = saved[1], &mean = saved[2], &variance = saved[3], &count = saved[4];
  const auto type = mean.scalar_type();
  const auto input = saved[0].to(type);  // halves are computed in fp32 and rounded once
  const double eps = context->saved_data["eps"].toDouble();
  const auto group =
      c10::static_intrusive_pointer_cast<SavedGroup>(context->saved_data["group"].toCapsule())
          ->group;

  const auto factor = weight.defined() ? weight.to(type) : Tensor();
  auto [input_gradient, weight_gradient, bias_gradient] =
      gradients_by_given_statistics(gradients[0].to(type), input, factor, mean, variance, eps);
  const auto scale = (variance.to(torch::kDouble) + eps).rsqrt();
  const auto sums =
      at::cat({bias_gradient.to(torch::kDouble), weight_gradient.to(torch::kDouble) / scale});
  group.all_reduce(sums).wait();
  const auto channels = mean.size(0);
  const auto slope = weight.defined() ? scale * weight.to(torch::kDouble) : scale;
  const auto shift = slope * sums.narrow(0, 0, channels) / count;
  const auto tilt = slope * scale.square() * sums.narrow(0, channels, channels) / count;
  input_gradient.sub_(along_channels(shift, input))
      .addcmul_(input - along_channels(mean, input), along_channels(tilt, input), -1);

  const auto of_weight = [&](const Tensor& gradient) {
    return weight.defined() ? gradient.to(weight.scalar_type()) : Tensor();
  };
  return {input_gradient.to(saved[0].scalar_type()), of_weight(weight_gradient),
      of_weight(bias_gradient), Tensor()};
}

}  // namespace

torch::Tensor sync_batch_norm(const torch::Tensor& input, const torch::Tensor& weight,
    const torch::Tensor& bias, const torch::Tensor& running_mean, const torch::Tensor& running_var,
    double momentum, double eps, const ProcessGroup& group) {
  check(input.dim() >= 2,
      "sync_batch_norm: the input must have the dimensions [N, C, ...]: ", input.sizes());
  const auto given = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const Layer layer{running_mean, running_var, momentum, eps, group};
  return SyncBatchNormFunction::apply(input, given(weight), given(bias), layer);
}

torch::Tensor SyncBatchNormScope::Rule::batch_norm(const BatchNormCall& call) {
  return sync_batch_norm(call.input, call.weight, call.bias, call.running_mean, call.running_var,
      call.momentum, call.eps, group_);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (is_training()) {
    const double momentum = next_momentum();
    return sync_batch_norm(
        input, weight, bias, running_mean, running_var, momentum, options.eps(), group_);
  }
  const bool by_batch = !running_mean.defined();
  return at::batch_norm(
      input, weight, bias, running_mean, running_var, by_batch, 0, options.eps(), true);
}

/// Counts the batch and returns the weight of its statistics; without a momentum all batches count
/// alike.
double SyncBatchNormImpl::next_momentum() {
  if (num_batches_tracked.defined()) num_batches_tracked += 1;
  if (options.momentum()) return *options.momentum();
  return num_batches_tracked.defined() ? 1.0 / num_batches_tracked.item<double>() : 0;
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  check(input.dim() >= 2 && input.size(1) == options.num_features(),
      "SyncBatchNorm: expected an input [N, ", options.num_features(), ", ...], got ",
      input.sizes());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", ranks=" << group_.size() << ")";
}

}  // namespace lockstep
