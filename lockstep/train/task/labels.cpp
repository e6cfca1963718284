#include "lockstep/train/task/labels.h"

#include <cmath>
#include <tuple>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "lockstep/train/task/element_task.h"

namespace lockstep {
namespace {

// As scikit-learn has it where there is nothing to be found.
torch::Tensor f1(
    const torch::Tensor& hits, const torch::Tensor& asked, const torch::Tensor& given) {
  const torch::Tensor both = asked + given;
  return at::where(both.eq(0), 0.0, 2 * hits / both);
}

}  // namespace

double average_precision(const torch::Tensor& scores, const torch::Tensor& labels) {
  const auto [sorted, order] = scores.to(torch::kDouble).sort(/*dim=*/0, /*descending=*/true);
  const torch::Tensor found = labels.to(torch::kDouble).index_select(0, order).cumsum(0);
  const auto count = found.size(0);
  const double* const score = sorted.const_data_ptr<double>();
  const double* const hits = found.const_data_ptr<double>();
  if (count == 0 || hits[count - 1] == 0) return 0;
  if (std::isnan(score[0])) return score[0];  // is sorted to the front
  double sum = 0, before = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 1 < count && score[i + 1] == score[i]) continue;
    sum += (hits[i] - before) * hits[i] / static_cast<double>(i + 1);
    before = hits[i];
  }
  return sum / before;
}

torch::Tensor Labels::loss(const torch::Tensor& logits, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(logits, target);
  return element_loss(
      ElementLoss::kBce, given, target.to(given.scalar_type()), at::Reduction::Mean);
}

torch::Tensor Labels::losses(const torch::Tensor& logits, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(logits, target);
  return element_loss(ElementLoss::kBce, given, target.to(given.scalar_type()), at::Reduction::None)
      .flatten(1)
      .mean(1);
}

// Its own sums are, of each label, samples that have it and were given it, that have it, and that
// were given it. A row is a sample: its logits, then its labels.
Findings Labels::measure(const torch::Tensor& logits, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(logits, target).flatten(1);
  const torch::Tensor asked = target.to(given.scalar_type()).flatten(1);
  const torch::Tensor loss =
      element_loss(ElementLoss::kBce, given, asked, at::Reduction::None).sum(torch::kDouble);
  const auto number = [&](std::int64_t count) { return at::full({}, count, loss.options()); };
  const torch::Tensor scores = given.to(torch::kDouble), labels = asked.to(torch::kDouble);
  const torch::Tensor predicted =
      at::where(scores.isnan(), scores, scores.gt(0).to(torch::kDouble));
  const torch::Tensor usual = sums_of({loss, number(labels.numel()), number(labels.size(0))});
  return {at::cat({usual, (predicted * labels).sum(0), labels.sum(0), predicted.sum(0)}),
      at::cat({scores, labels}, 1)};
}

void Labels::score(const Findings& all, Evaluation& result) const {
  const torch::Tensor counts = all.sums.slice(0, Findings::kOwn).view({3, -1});
  const torch::Tensor of_labels = f1(counts[0], counts[1], counts[2]);
  result.scores.micro_f1 = f1(counts[0].sum(), counts[1].sum(), counts[2].sum()).item<double>();
  result.scores.macro_f1 = of_labels.mean().item<double>();
  if (!all.rows.defined()) return;
  ClassScores each_f1{.name = "f1", .title = "F1", .values = {}};
  ClassScores each{.name = "average_precision", .title = "average precision", .values = {}};
  const std::int64_t labels = counts.size(1);
  double sum = 0;
  for (std::int64_t label = 0; label < labels; ++label) {
    each_f1.values.emplace_back(of_labels[label].item<double>());
    each.values.emplace_back(
        average_precision(all.rows.select(1, label), all.rows.select(1, labels + label)));
    sum += *each.values.back();
  }
  result.scores.average_precision = sum / static_cast<double>(labels);
  result.of_classes = {std::move(each_f1), std::move(each)};
}

}  // namespace lockstep
