#include "lockstep/train/time_budget.h"

#include <algorithm>

#include <ATen/ops/zeros.h>
#include <torch/types.h>

namespace lockstep {
namespace {

constexpr double kSecondsBetweenChecks = 0.25;
constexpr double kMostSteps = 1000;

}  // namespace

TimeBudget::TimeBudget(std::optional<double> seconds, ProcessGroup world)
    : limit_(seconds), world_(std::move(world)) {}

bool TimeBudget::agree() {
  const torch::Tensor elapsed = at::zeros({1}, torch::kDouble);
  elapsed.fill_(watch_.seconds());
  world_.all_reduce(elapsed, ReduceOp::kMax).wait();
  // From here on every rank computes with the same number, so all come to the same decisions.
  const double seconds = elapsed.item<double>();
  if (seconds >= *limit_) return true;
  steps_checked_ += steps_planned_;
  steps_planned_ =
      steps_to_next_check(seconds / static_cast<double>(steps_checked_), *limit_ - seconds);
  steps_until_check_ = steps_planned_;
  return false;
}

std::int64_t steps_to_next_check(double step_seconds, double seconds_left) {
  const double wait = std::min(kSecondsBetweenChecks, seconds_left);
  return static_cast<std::int64_t>(
      std::clamp(wait / std::max(step_seconds, 1e-9), 1.0, kMostSteps));
}

}  // namespace lockstep
