#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// Tells how long a run will still take, from a moving mean of the step time and the last
/// evaluation's time.
class Eta {
 public:
  /// Takes in how long some steps took; recent steps weigh more.
  void add_steps(std::int64_t steps, double seconds);
  void add_evaluation(double seconds) { evaluation_seconds_ = seconds; }

  /// Gives nothing until a step was taken in.
  std::optional<double> seconds_left(std::int64_t steps, std::int64_t evaluations) const;

 private:
  double step_seconds_ = 0;
  double weight_ = 0;
  double evaluation_seconds_ = 0;
};

}  // namespace lockstep
