#include "lockstep/parallel/schedule/timetable.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"

namespace lockstep {
namespace {

using enum ActionKind;

using StageCosts = std::vector<ActionCosts>;

void check_costs(const Schedule& schedule, const StageCosts& stages) {
  check(stages.size() == static_cast<std::size_t>(schedule.stages),
      "simulate: the costs of each stage are needed: of ", stages.size(), " for ", schedule.stages);
  for (const ActionCosts& costs : stages) {
    for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight,
             costs.backward, costs.transfer}) {
      check(
          cost >= 0 && std::isfinite(cost), "simulate: a cost must be a time of 0 or more: ", cost);
    }
  }
}

// Of the link between two neighbouring stages, whichever of them acts.
double transfer_between(const StageCosts& stages, int one, int other) {
  return stages[static_cast<std::size_t>(std::min(one, other))].transfer;
}

double cost_of(const StageCosts& stages, const Action& action) {
  const ActionCosts& costs = stages[static_cast<std::size_t>(action.stage)];
  switch (action.kind) {
    case kSendBackward:
    case kReceiveForward:
      return transfer_between(stages, action.stage, action.stage - 1);
    case kSendForward:
    case kReceiveBackward:
      return costs.transfer;
    default:
      return costs.of(action.kind);
  }
}

// When the input of an action is there.
double ready_at(const Schedule& schedule, bool transfers, const StageCosts& stages,
    const Action& action, const std::vector<TimedAction>& events) {
  double ready = 0;
  for (const Action& need : needs_of(schedule, transfers, action)) {
    const TimedAction& event = events[event_of(schedule, need)];
    // A receive may begin while its send is still under way.
    if (is_receive(action.kind)) return event.start;
    const bool comes_over = schedule.rank_of(need.stage) != schedule.rank_of(action.stage);
    const double transfer = comes_over ? transfer_between(stages, need.stage, action.stage) : 0;
    ready = std::max(ready, event.end + transfer);
  }
  return ready;
}

int most_live(const std::vector<Action>& actions, int micro_batches, Checkpoint checkpoint) {
  int live = 0, most = 0;
  for (const Action& action : actions) {
    const bool begins_backward = action.kind == kBackward || action.kind == kBackwardInput;
    const bool again = recomputes(checkpoint, action.micro_batch, micro_batches);
    if (again ? begins_backward : action.kind == kForward) most = std::max(most, ++live);
    if (action.kind == kBackward || action.kind == kBackwardWeight) --live;
  }
  return most;
}

int whole(double time) {
  const double rounded = std::round(time);
  check(std::abs(time - rounded) < 1e-9, "to_table: a time is not a whole number of units: ", time,
      "; simulate with costs that are");
  return static_cast<int>(rounded);
}

using Cells = std::vector<std::vector<std::string>>;

Cells cells_of(const Timetable& timetable) {
  Cells rows(static_cast<std::size_t>(timetable.stages),
      std::vector<std::string>(static_cast<std::size_t>(whole(timetable.length)), "."));
  for (const auto& actions : timetable.ranks) {
    for (const auto& [action, start, end] : actions) {
      if (!is_compute(action.kind)) continue;
      auto& row = rows[static_cast<std::size_t>(action.stage)];
      const std::string text = to_string(action);
      const int first = whole(start);
      for (int time = first; time < whole(end); ++time) {
        row[static_cast<std::size_t>(time)] =
            time == first ? text.substr(text.find_first_not_of("0123456789")) : "=";
      }
    }
  }
  return rows;
}

std::size_t widest(const Cells& rows) {
  std::size_t width = 0;
  for (const auto& row : rows) {
    for (const auto& cell : row) width = std::max(width, cell.size());
  }
  return width;
}

}  // namespace

double Timetable::idle_share() const {
  double busy = 0;
  for (const auto& actions : ranks) {
    for (const auto& [action, start, end] : actions) {
      if (is_compute(action.kind)) busy += end - start;
    }
  }
  return length > 0 ? 1 - busy / (static_cast<double>(ranks.size()) * length) : 0;
}

double ActionCosts::of(ActionKind kind) const {
  switch (kind) {
    case kForward:
      return forward;
    case kBackward:
      return backward;
    case kBackwardInput:
      return backward_input;
    case kBackwardWeight:
      return backward_weight;
    default:
      return 0;
  }
}

Timetable simulate_stages(const Schedule& schedule, const std::vector<ActionCosts>& stages) {
  check_costs(schedule, stages);
  check_schedule(schedule);
  const bool transfers = has_transfers(schedule);
  std::vector<TimedAction> events(number_of_events(schedule));
  std::vector<double> free_at(schedule.actions.size());
  Timetable timetable{schedule.stages, {}, 0, {}};
  timetable.ranks.resize(schedule.actions.size());
  for (const auto& [rank, action] : execution_order(schedule)) {
    double& free = free_at[static_cast<std::size_t>(rank)];
    const double start = std::max(free, ready_at(schedule, transfers, stages, action, events));
    free = start + cost_of(stages, action);
    events[event_of(schedule, action)] = {action, start, free};
    timetable.ranks[static_cast<std::size_t>(rank)].push_back({action, start, free});
    timetable.length = std::max(timetable.length, free);
  }
  timetable.most_live_activations = most_live_activations(schedule, Checkpoint::kNever);
  return timetable;
}

std::vector<int> most_live_activations(const Schedule& schedule, Checkpoint checkpoint) {
  std::vector<int> most;
  for (const auto& actions : schedule.actions)
    most.push_back(most_live(actions, schedule.micro_batches, checkpoint));
  return most;
}

Timetable simulate(const Schedule& schedule, const ActionCosts& costs) {
  check(schedule.stages > 0, "simulate: a schedule has stages: ", schedule.stages);
  return simulate_stages(
      schedule, std::vector<ActionCosts>(static_cast<std::size_t>(schedule.stages), costs));
}

std::string to_table(const Timetable& timetable) {
  const Cells rows = cells_of(timetable);
  const std::size_t width = widest(rows);
  std::string table;
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    table += concat("stage ", stage, " ");
    for (const auto& cell : rows[stage]) {
      table += std::string(1 + width - cell.size(), ' ');
      table += cell;
    }
    table += "\n";
  }
  return table;
}

double bubble_share(ScheduleKind kind, int ranks, int stages, int micro_batches) {
  make_schedule(kind, ranks, stages, micro_batches);
  const double others = ranks - 1;
  const double work = static_cast<double>(stages) / ranks * micro_batches;
  switch (kind) {
    case ScheduleKind::kSequential:
      return others / ranks;
    case ScheduleKind::kZeroBubble:
      return others / (3 * work + others);
    default:
      return others / (work + others);
  }
}

}  // namespace lockstep
