#include "lockstep/train/evaluation/predictions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/argmax.h>

#include "lockstep/data/batch.h"

namespace lockstep {
namespace {

double badness(const Judgement& sample) {
  return std::isnan(sample.loss) ? std::numeric_limits<double>::infinity() : sample.loss;
}

}  // namespace

void Predictions::add(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::Tensor losses = loss_.of_each(scores, labels).to(torch::kDouble).cpu();
  const torch::Tensor predicted = scores.argmax(1).cpu(), classes = labels.cpu();
  for (std::int64_t i = 0; i < classes.size(0); ++i, ++seen_) {
    const auto label = classes.const_data_ptr<std::int64_t>()[i];
    if (label == kIgnoredTarget) continue;
    const auto taken_for = predicted.const_data_ptr<std::int64_t>()[i];
    confusion_.add(label, taken_for);
    worst_.push_back({.index = seen_,
        .label = label,
        .predicted = taken_for,
        .loss = losses.const_data_ptr<double>()[i]});
  }
  keep_worst();
}

void Predictions::keep_worst() {
  std::stable_sort(worst_.begin(), worst_.end(),
      [](const Judgement& a, const Judgement& b) { return badness(a) > badness(b); });
  worst_.resize(std::min(worst_.size(), most_));
}

}  // namespace lockstep
