#include "lockstep/train/task/element_task.h"

#include <cmath>
#include <numeric>

#include <ATen/ops/_assert_async.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// A row [numbers] for each sample.
torch::Tensor rows(const torch::Tensor& tensor) {
  return tensor.dim() == 1 ? tensor.unsqueeze(1) : tensor.flatten(1);
}

// One of the numbers of a sample, over the samples; parts are put together by their means, as sums
// of large squares would lose the digits.
struct Spread {
  double count = 0, mean = 0, squares = 0;  // of the distances from the mean

  void add(const Spread& part) {
    const double all = count + part.count, distance = part.mean - mean;
    squares += part.squares + distance * distance * count * part.count / all;
    mean += distance * part.count / all;
    count = all;
  }
};

// As scikit-learn has it where nothing varies.
double explained(double squared_errors, double squares) {
  if (squares != 0 || std::isnan(squared_errors)) return 1 - squared_errors / squares;
  return squared_errors > 0 ? 0 : 1;
}

}  // namespace

torch::Tensor element_loss(ElementLoss loss, const torch::Tensor& output,
    const torch::Tensor& target, at::Reduction::Reduction how) {
  switch (loss) {
    case ElementLoss::kMse:
      return at::mse_loss(output, target, how);
    case ElementLoss::kL1:
      return at::l1_loss(output, target, how);
    case ElementLoss::kHuber:
      return at::huber_loss(output, target, how);
    case ElementLoss::kBce:
      break;
  }
  // Outside of them the loss has no bound. A device is not waited for.
  const torch::Tensor fits = target.ge(0).logical_and(target.le(1)).all();
  constexpr const char* kRefusal = "train: binary cross entropy needs targets from 0 to 1";
  if (fits.is_cpu()) {
    check(fits.item<bool>(), kRefusal);
  } else {
    at::_assert_async(fits, kRefusal);
  }
  return at::binary_cross_entropy_with_logits(output, target, {}, {}, how);
}

torch::Tensor fitted(const torch::Tensor& output, const torch::Tensor& target) {
  const bool is_row = output.dim() == 2 && target.dim() > 0 && output.size(0) == target.size(0) &&
                      output.numel() == target.numel();
  check(is_row || output.sizes() == target.sizes(), "train: the model gives ", output.sizes(),
      " for a target ", target.sizes(), "; both must have the same shape");
  return at_least_float(output).reshape(target.sizes());
}

torch::Tensor ElementTask::loss(const torch::Tensor& output, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(output, target);
  return element_loss(loss_, given, target.to(given.scalar_type()), at::Reduction::Mean);
}

torch::Tensor ElementTask::losses(const torch::Tensor& output, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(output, target);
  return rows(element_loss(loss_, given, target.to(given.scalar_type()), at::Reduction::None))
      .mean(1);
}

Findings ElementTask::measure(const torch::Tensor& output, const torch::Tensor& target) const {
  const torch::Tensor given = fitted(output, target), asked = target.to(given.scalar_type());
  const torch::Tensor predicted = loss_ == ElementLoss::kBce ? given.sigmoid() : given;
  const torch::Tensor errors = predicted.to(torch::kDouble) - asked.to(torch::kDouble);
  const auto number = [&](std::int64_t count) { return at::full({}, count, errors.options()); };
  const torch::Tensor loss =
      element_loss(loss_, given, asked, at::Reduction::None).sum(torch::kDouble);
  return {sums_of({loss, number(asked.numel()), number(asked.size(0)), errors.abs().sum(),
      errors.square().sum()})};
}

void ElementTask::score(const Findings& all, Evaluation& result) const {
  const auto* const sum = all.sums.const_data_ptr<double>();
  const double* const squared = sum + kSquared;
  const double total = std::accumulate(squared, sum + all.sums.size(0), 0.0);
  result.scores.mae = sum[kAbsolute] / sum[Findings::kCounted];
  result.scores.rmse = std::sqrt(total / sum[Findings::kCounted]);
}

// A row is a batch: its size; of each number of a sample the mean, and the squares of the distances
// from it.
Findings Regression::measure(const torch::Tensor& output, const torch::Tensor& target) const {
  Findings found = ElementTask::measure(output, target);
  const torch::Tensor asked = rows(target.to(torch::kDouble));
  if (asked.size(1) > kMostExplained) return found;
  const torch::Tensor errors = rows(fitted(output, target).to(torch::kDouble)) - asked;
  const torch::Tensor mean = asked.mean(0), squares = (asked - mean).square().sum(0);
  const torch::Tensor size = at::full({1}, asked.size(0), mean.options());
  found.sums = at::cat({found.sums.narrow(0, 0, kSquared), errors.square().sum(0)});
  found.rows = at::cat({size, mean, squares}).unsqueeze(0);
  return found;
}

void Regression::score(const Findings& all, Evaluation& result) const {
  ElementTask::score(all, result);
  if (!all.rows.defined() || all.sums.const_data_ptr<double>()[Findings::kSamples] < 2) return;
  const std::int64_t numbers = all.rows.size(1) / 2;
  double sum = 0;
  for (std::int64_t number = 0; number < numbers; ++number) {
    Spread spread;
    for (std::int64_t row = 0; row < all.rows.size(0); ++row) {
      const auto* const part = all.rows.const_data_ptr<double>() + row * all.rows.size(1);
      spread.add({part[0], part[1 + number], part[1 + numbers + number]});
    }
    sum += explained(all.sums.const_data_ptr<double>()[kSquared + number], spread.squares);
  }
  result.scores.r2 = sum / static_cast<double>(numbers);
}

}  // namespace lockstep
