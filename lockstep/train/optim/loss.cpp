#include "lockstep/train/optim/loss.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/batch.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/train/task/task.h"

namespace lockstep {
namespace {

nn::PluginLoss plugin_loss(const std::string& name) {
  const auto& losses = nn::plugin_losses();
  const auto found = std::ranges::find(losses, name, &nn::PluginLoss::name);
  if (found != losses.end()) return *found;
  auto names = nn::loss_names();
  for (const nn::PluginLoss& loss : losses) names.push_back(loss.name);
  throw InvalidArgument(
      concat("train: --loss: there is no such loss: ", name, "; there are ", joined(names)));
}

// Of each sample, over the classes.
torch::Tensor squared_errors(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::Tensor classes = labels.clamp_min(0).unsqueeze(1);
  const torch::Tensor one_hot = at::zeros_like(scores).scatter_(1, classes, 1);
  return at::mse_loss(scores, one_hot, at::Reduction::None)
      .mean(1)
      .masked_fill(labels.eq(kIgnoredTarget), 0);
}

}  // namespace

Loss::Loss(const std::string& name, double smoothing)
    : smoothing_(smoothing), is_squared_(name == nn::kMeanSquaredError) {
  if (name != nn::kCrossEntropy && !is_squared_) plugin_ = plugin_loss(name);
}

torch::Tensor Loss::cross_entropy(
    const torch::Tensor& scores, const torch::Tensor& labels, at::Reduction::Reduction how) const {
  return at::cross_entropy_loss(
      at_least_float(scores), labels, {}, how, kIgnoredTarget, smoothing_);
}

// The plugin sees only samples that count.
torch::Tensor Loss::plugin_sum(const torch::Tensor& given, const torch::Tensor& labels) const {
  const torch::Tensor scores = given.to(torch::kFloat);
  const torch::Tensor counted = labels.ne(kIgnoredTarget).nonzero().squeeze(1);
  const auto count = counted.size(0);
  if (count == 0) return scores.sum() * 0;  // has a gradient, as the other parts of the batch
  const bool all = count == labels.size(0);
  const torch::Tensor mean = nn::loss_by(*plugin_, all ? scores : scores.index_select(0, counted),
      all ? labels : labels.index_select(0, counted));
  return mean * static_cast<double>(count);
}

torch::Tensor Loss::sum(const torch::Tensor& scores, const torch::Tensor& labels) const {
  if (plugin_) return plugin_sum(scores, labels);
  if (is_squared_) return squared_errors(at_least_float(scores), labels).sum();
  return cross_entropy(scores, labels, at::Reduction::Sum);
}

torch::Tensor Loss::mean(const torch::Tensor& scores, const torch::Tensor& labels) const {
  return sum(scores, labels) / static_cast<double>(labels.size(0));
}

torch::Tensor Loss::of_each(const torch::Tensor& scores, const torch::Tensor& labels) const {
  if (is_squared_) return squared_errors(at_least_float(scores), labels);
  if (!plugin_) return cross_entropy(scores, labels, at::Reduction::None);
  std::vector<torch::Tensor> each;
  for (std::int64_t i = 0; i < labels.size(0); ++i)
    each.push_back(plugin_sum(scores.slice(0, i, i + 1), labels.slice(0, i, i + 1)));
  return at::stack(each);
}

}  // namespace lockstep
