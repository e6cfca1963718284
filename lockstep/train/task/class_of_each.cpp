#include "lockstep/train/task/class_of_each.h"

#include <cmath>
#include <numbers>

#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/language/token_loss.h"

namespace lockstep {
namespace {

torch::Tensor cross_entropy(const torch::Tensor& scores, const torch::Tensor& target,
    at::Reduction::Reduction how, double smoothing = 0) {
  return at::cross_entropy_loss(
      scores, target.to(torch::kLong), {}, how, kIgnoredTarget, smoothing);
}

void check_shapes(
    bool fit, const torch::Tensor& scores, const torch::Tensor& target, const char* wanted) {
  check(fit, "train: the model gives ", scores.sizes(), " for a target ", target.sizes(),
      "; the task needs ", wanted);
}

}  // namespace

torch::Tensor ClassOfEach::loss(const torch::Tensor& scores, const torch::Tensor& target) const {
  const torch::Tensor sum =
      cross_entropy(by_class(scores, target), target, at::Reduction::Sum, smoothing_);
  return sum / static_cast<double>(target.numel());
}

torch::Tensor ClassOfEach::losses_of_elements(
    const torch::Tensor& scores, const torch::Tensor& target) const {
  return cross_entropy(by_class(scores, target), target, at::Reduction::None);
}

torch::Tensor ClassOfEach::losses(const torch::Tensor& scores, const torch::Tensor& target) const {
  const torch::Tensor each = losses_of_elements(scores, target).view({target.size(0), -1});
  const torch::Tensor counted = target.ne(kIgnoredTarget).view({target.size(0), -1}).sum(1);
  return each.sum(1) / counted.clamp_min(1);
}

Findings ClassOfEach::measure(const torch::Tensor& scores, const torch::Tensor& target) const {
  const torch::Tensor losses = losses_of_elements(scores, target);
  const torch::Tensor samples = at::full({}, target.size(0), losses.options());
  return {sums_of({losses.sum(torch::kDouble), target.ne(kIgnoredTarget).sum(), samples})};
}

torch::Tensor Tokens::loss(const torch::Tensor& scores, const torch::Tensor& target) const {
  const bool is_sum = gives_losses_ && scores.dim() == 0;
  if (is_sum) return scores / static_cast<double>(target.numel());
  const auto factors = nn::score_factors(scores);
  if (!factors) return ClassOfEach::loss(scores, target);
  const torch::Tensor sum =
      nn::chunked_cross_entropy(*factors, target, kIgnoredTarget, smoothing());
  return sum / static_cast<double>(target.numel());
}

std::vector<torch::Tensor> Tokens::measured_inputs(const Batch& batch) const {
  std::vector<torch::Tensor> all = inputs(batch);
  const torch::Tensor next = target(batch);
  if (gives_losses_ && all.size() == 1 && all.front().sizes() == next.sizes())
    all.front() = nn::with_next_tokens(all.front(), next);
  return all;
}

torch::Tensor Tokens::losses_of_elements(
    const torch::Tensor& output, const torch::Tensor& target) const {
  const bool are_losses = gives_losses_ && output.sizes() == target.sizes();
  return are_losses ? output : ClassOfEach::losses_of_elements(output, target);
}

torch::Tensor Tokens::by_class(const torch::Tensor& scores, const torch::Tensor& target) const {
  check_shapes(scores.dim() == target.dim() + 1 &&
                   scores.sizes().slice(0, target.sizes().size()) == target.sizes(),
      scores, target,
      "scores [N, length, vocabulary] for tokens [N, length]; for one class a sample, let the "
      "target be [N]");
  return at_least_float(scores).movedim(-1, 1);
}

void Tokens::score(const Findings& /*all*/, Evaluation& result) const {
  const double loss = result.scores.loss.value();
  result.scores.perplexity = std::exp(loss);
  if (are_bytes_) result.scores.bits_per_byte = loss / std::numbers::ln2;
}

torch::Tensor Segmentation::by_class(
    const torch::Tensor& scores, const torch::Tensor& target) const {
  const bool fit = scores.dim() == target.dim() + 1 && scores.dim() > 1 &&
                   scores.size(0) == target.size(0) &&
                   scores.sizes().slice(2) == target.sizes().slice(1);
  check_shapes(
      fit, scores, target, "scores [N, classes, height, width] for classes [N, height, width]");
  return at_least_float(scores);
}

// Its own sums are the pixels of each class by the class that they were taken for, row by row.
Findings Segmentation::measure(const torch::Tensor& scores, const torch::Tensor& target) const {
  Findings found = ClassOfEach::measure(scores, target);
  const std::int64_t classes = scores.size(1);
  const torch::Tensor counted = target.ne(kIgnoredTarget);
  const torch::Tensor pairs = target.to(torch::kLong) * classes + scores.argmax(1);
  const torch::Tensor counts =
      at::bincount(pairs.masked_select(counted), {}, classes * classes).to(torch::kDouble);
  found.sums = at::cat({found.sums, counts});
  return found;
}

void Segmentation::score(const Findings& all, Evaluation& result) const {
  const torch::Tensor counts = all.sums.slice(0, Findings::kOwn);
  const auto classes = std::llround(std::sqrt(static_cast<double>(counts.numel())));
  const torch::Tensor pairs = counts.view({classes, classes}), right = pairs.diagonal();
  const torch::Tensor either = pairs.sum(0) + pairs.sum(1) - right;
  result.scores.pixel_accuracy = right.sum().item<double>() / counts.sum().item<double>();
  ClassScores iou{.name = "iou", .title = "IoU", .values = {}};
  double sum = 0, seen = 0;
  for (std::int64_t number = 0; number < classes; ++number) {
    const auto all_of_it = either[number].item<double>();
    auto& value = iou.values.emplace_back();
    if (all_of_it == 0) continue;
    value = right[number].item<double>() / all_of_it;
    sum += *value;
    ++seen;
  }
  result.scores.mean_iou = sum / seen;
  result.of_classes = {std::move(iou)};
}

}  // namespace lockstep
