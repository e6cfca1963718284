#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep::plan {

/// The uses of a step's tasks.
enum class Use { kInput, kForward, kBackward, kCommunication, kOptimizer, kRest };
constexpr auto names_of(Use) {
  return std::array{EnumName{Use::kInput, "input"}, EnumName{Use::kForward, "forward"},
      EnumName{Use::kBackward, "backward"}, EnumName{Use::kCommunication, "communication"},
      EnumName{Use::kOptimizer, "optimizer"}, EnumName{Use::kRest, "other"}};
}
inline constexpr std::size_t kUses = names_of(Use{}).size();

/// A task of a step and when it happens, in seconds from the step's begin.
struct TimedTask {
  std::size_t lane = 0;
  Use use = Use::kRest;
  std::string name;
  double start = 0, end = 0;
};

/// A discrete-event simulation of one step.
///
/// Lanes, a place or a link each, do their tasks one after the other in the order in which these
/// are added; a task starts as soon as its lane is free and the tasks that it needs are done. A
/// task is added after those that it needs, so that its time is known at once.
class StepClock {
 public:
  using Task = std::size_t;

  std::size_t add_lane(std::string name);

  /// Adds a task and returns it. Throws InvalidArgument for a lane or a need that is not there.
  Task add(std::size_t lane, Use use, std::string name, double seconds,
      std::span<const Task> needs = {});

  double end_of(Task task) const { return tasks_[task].end; }
  double length() const;
  const std::vector<std::string>& lanes() const { return lanes_; }
  const std::vector<TimedTask>& tasks() const { return tasks_; }

  /// Returns the seconds that a lane spends on each use.
  std::array<double, kUses> uses_of(std::size_t lane) const;

 private:
  std::vector<std::string> lanes_;
  std::vector<double> free_at_;  // per lane
  std::vector<TimedTask> tasks_;
};

}  // namespace lockstep::plan
