#include "lockstep/plan/shared_timetable.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"

namespace lockstep::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A rank on its way through its actions.
struct Walk {
  std::size_t next = 0;  // action
  double ready = 0;      // when the next one's input is there; kNever: not known yet
  std::optional<TimedAction> running = {};
};

/// A simulation from one event to the next; between two of them all speeds are constant.
class SharedRun {
 public:
  SharedRun(
      const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown)
      : schedule_(schedule),
        stages_(stages),
        slowdown_(slowdown),
        ends_(number_of_events(schedule), kNever),
        walks_(schedule.actions.size()) {
    timetable_.stages = schedule.stages;
    timetable_.ranks.resize(schedule.actions.size());
  }

  Timetable run() {
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) look_ahead(rank);
    begin_ready();
    for (double event = next_event(); event != kNever; event = next_event()) {
      now_ = event;
      end_due();
      begin_ready();
    }
    timetable_.length = now_;
    return std::move(timetable_);
  }

 private:
  // When the input of the rank's next action is there, as far as that is known.
  void look_ahead(std::size_t rank) {
    Walk& walk = walks_[rank];
    const auto& actions = schedule_.actions[rank];
    walk.ready = walk.next < actions.size() ? ready_at(actions[walk.next]) : kNever;
  }

  double ready_at(const Action& action) const {
    double ready = 0;
    for (const Action& need : needs_of(schedule_, false, action)) {
      const auto edge = static_cast<std::size_t>(std::min(need.stage, action.stage));
      const bool comes_over = schedule_.rank_of(need.stage) != schedule_.rank_of(action.stage);
      const double transfer = comes_over ? stages_[edge].transfer : 0;
      ready = std::max(ready, ends_[event_of(schedule_, need)] + transfer);
    }
    return ready;
  }

  void begin_ready() {
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      Walk& walk = walks_[rank];
      if (walk.running || walk.ready > now_) continue;
      const Action& action = schedule_.actions[rank][walk.next++];
      const ActionCosts& costs = stages_[static_cast<std::size_t>(action.stage)];
      walk.running = {action, now_, now_ + costs.of(action.kind) * speed_};
      ++active_;
    }
    change_speed();
  }

  // An end moves only if the speed has changed, so that equal speeds give exact times.
  void change_speed() {
    const double speed = active_ > 0 ? slowdown_(active_) : 1;
    if (speed == speed_) return;
    for (Walk& walk : walks_) {
      if (walk.running) walk.running->end = now_ + (walk.running->end - now_) * speed / speed_;
    }
    speed_ = speed;
  }

  double next_event() const {
    double next = kNever;
    for (const Walk& walk : walks_)
      next = std::min(next, walk.running ? walk.running->end : walk.ready);
    return next;
  }

  void end_due() {
    std::vector<std::size_t> ended;
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      Walk& walk = walks_[rank];
      if (!walk.running || walk.running->end > now_) continue;
      ends_[event_of(schedule_, walk.running->action)] = now_;
      timetable_.ranks[rank].push_back(*walk.running);
      walk.running.reset();
      --active_;
      ended.push_back(rank);
    }
    if (ended.empty()) return;
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      if (!walks_[rank].running) look_ahead(rank);
    }
  }

  const Schedule& schedule_;
  const std::vector<ActionCosts>& stages_;
  const Slowdown& slowdown_;
  std::vector<double> ends_;  // of events; kNever: not over
  std::vector<Walk> walks_;   // of ranks
  Timetable timetable_;
  double now_ = 0;
  double speed_ = 1;  // how many times as long all running actions take
  int active_ = 0;
};

}  // namespace

Timetable shared_timetable(
    const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown) {
  check(!has_transfers(schedule), "plan: a schedule with transfers is not simulated in company");
  Timetable alone = simulate_stages(schedule, stages);  // also checks both
  SharedRun run(schedule, stages, slowdown);
  Timetable timetable = run.run();
  timetable.most_live_activations = std::move(alone.most_live_activations);
  return timetable;
}

std::vector<double> shared_seconds(const std::vector<double>& costs, const Slowdown& slowdown) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
      [&](std::size_t one, std::size_t other) { return costs[one] < costs[other]; });
  std::vector<double> ends(costs.size());
  double done = 0, now = 0;  // of each task that is left; since the begin
  for (std::size_t ended = 0; ended < order.size(); ++ended) {
    const double more = costs[order[ended]] - done;
    if (more > 0) now += more * slowdown(static_cast<int>(order.size() - ended));
    done = costs[order[ended]];
    ends[order[ended]] = now;
  }
  return ends;
}

}  // namespace lockstep::plan
