#include "lockstep/train/agreement.h"

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>
#include <torch/types.h>

namespace lockstep {
namespace {

constexpr double kSecondsBetweenChecks = 0.25;
constexpr double kMostSteps = 1000;

}  // namespace

Agreement::Numbers Agreement::maximum(const Numbers& own, const std::optional<double>& limit) {
  if (world_.size() == 1) return own;
  const torch::Tensor tensor = at::empty({std::ssize(own)}, torch::kDouble);
  auto* const values = tensor.mutable_data_ptr<double>();
  std::copy(own.begin(), own.end(), values);
  world_.all_reduce(tensor, ReduceOp::kMax).wait();
  Numbers agreed{};
  std::copy_n(values, kNumbers, agreed.begin());
  plan(agreed.front(), limit);
  return agreed;
}

// Every rank computes with the same numbers, so all come to the same step.
void Agreement::plan(double seconds, const std::optional<double>& limit) {
  const double step_seconds = (seconds - seconds_) / static_cast<double>(steps_planned_);
  const double left = limit.value_or(std::numeric_limits<double>::infinity()) - seconds;
  seconds_ = seconds;
  steps_planned_ = steps_to_next_check(step_seconds, left);
  steps_until_check_ = steps_planned_;
}

std::int64_t steps_to_next_check(double step_seconds, double seconds_left) {
  const double wait = std::min(kSecondsBetweenChecks, seconds_left);
  return static_cast<std::int64_t>(
      std::clamp(wait / std::max(step_seconds, 1e-9), 1.0, kMostSteps));
}

}  // namespace lockstep
