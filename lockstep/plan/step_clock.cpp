#include "lockstep/plan/step_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::plan {

std::size_t StepClock::add_lane(std::string name) {
  lanes_.push_back(std::move(name));
  free_at_.push_back(0);
  return lanes_.size() - 1;
}

StepClock::Task StepClock::add(
    std::size_t lane, Use use, std::string name, double seconds, std::span<const Task> needs) {
  check(lane < lanes_.size(), "plan: there is no lane ", lane);
  check(seconds >= 0 && std::isfinite(seconds), "plan: ", name, " takes ", seconds, " seconds");
  double start = free_at_[lane];
  for (const Task need : needs) {
    check(need < tasks_.size(), "plan: ", name, " needs a task that is not there");
    start = std::max(start, tasks_[need].end);
  }
  free_at_[lane] = start + seconds;
  tasks_.push_back({lane, use, std::move(name), start, start + seconds});
  return tasks_.size() - 1;
}

double StepClock::length() const {
  return lanes_.empty() ? 0 : *std::max_element(free_at_.begin(), free_at_.end());
}

std::array<double, kUses> StepClock::uses_of(std::size_t lane) const {
  std::array<double, kUses> uses{};
  for (const TimedTask& task : tasks_) {
    if (task.lane == lane) uses[static_cast<std::size_t>(task.use)] += task.end - task.start;
  }
  return uses;
}

}  // namespace lockstep::plan
