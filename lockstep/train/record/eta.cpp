#include "lockstep/train/record/eta.h"

#include <cmath>

namespace lockstep {
namespace {

// About the last 200 steps count.
constexpr double kRemembered = 0.995;

}  // namespace

void Eta::add_steps(std::int64_t steps, double seconds) {
  if (steps <= 0) return;
  const double keep = std::pow(kRemembered, static_cast<double>(steps));
  const double mean = seconds / static_cast<double>(steps);
  // Starting from weight zero makes the first steps count in full, not mixed with a zero.
  step_seconds_ =
      (step_seconds_ * weight_ * keep + mean * (1 - keep)) / (weight_ * keep + 1 - keep);
  weight_ = weight_ * keep + 1 - keep;
}

std::optional<double> Eta::seconds_left(std::int64_t steps, std::int64_t evaluations) const {
  if (weight_ == 0) return std::nullopt;
  return static_cast<double>(steps) * step_seconds_ +
         static_cast<double>(evaluations) * evaluation_seconds_;
}

}  // namespace lockstep
