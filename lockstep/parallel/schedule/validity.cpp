#include <algorithm>
#include <cstddef>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {
namespace {

using enum ActionKind;

void check_shape(const Schedule& schedule) {
  check(schedule.ranks >= 1 && schedule.stages >= 1 && schedule.micro_batches >= 1,
      "schedule: ranks, stages and micro-batches must be at least 1: ", schedule.ranks, ", ",
      schedule.stages, ", ", schedule.micro_batches);
  check(schedule.actions.size() == static_cast<std::size_t>(schedule.ranks),
      "schedule: there must be one list of actions a rank: ", schedule.actions.size(), " for ",
      schedule.ranks, " ranks");
}

bool is_between(int number, int size) { return number >= 0 && number < size; }

// The edge (stage, stage + 1) over which a transfer goes.
int edge_of(const Action& action) {
  const bool above = action.kind == kSendForward || action.kind == kReceiveBackward;
  return above ? action.stage : action.stage - 1;
}

bool has_edge(const Schedule& schedule, const Action& transfer) {
  const int edge = edge_of(transfer);
  return edge >= 0 && edge + 1 < schedule.stages && crosses_ranks(schedule, edge);
}

void check_action(const Schedule& schedule, int rank, const Action& action) {
  const auto text = [&] { return concat("schedule: rank ", rank, ", ", to_string(action), ": "); };
  check(is_between(action.stage, schedule.stages) &&
            is_between(action.micro_batch, schedule.micro_batches),
      text(), "there are ", schedule.stages, " stages and ", schedule.micro_batches,
      " micro-batches");
  check(schedule.rank_of(action.stage) == rank, text(), "the stage is on rank ",
      schedule.rank_of(action.stage));
  check(is_compute(action.kind) || has_edge(schedule, action), text(),
      "there is no stage on another rank to exchange with");
}

std::vector<int> count_events(const Schedule& schedule) {
  std::vector<int> counts(number_of_events(schedule));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      check_action(schedule, rank, action);
      ++counts[event_of(schedule, action)];
      if (action.kind == kBackward) {
        ++counts[event_of(schedule, {action.stage, kBackwardWeight, action.micro_batch})];
      }
    }
  }
  return counts;
}

void check_counts(const Schedule& schedule) {
  const bool transfers = has_transfers(schedule);
  const std::vector<int> counts = count_events(schedule);
  const auto check_count = [&](const Action& action, bool wanted) {
    const int count = counts[event_of(schedule, action)];
    check(count == (wanted ? 1 : 0), "schedule: ", to_string(action),
        " must happen once but happens ", count, " times (B is both I and W)");
  };
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      for (const ActionKind kind : {kForward, kBackward, kBackwardWeight}) {
        check_count({stage, kind, micro_batch}, true);
      }
      for (const ActionKind kind :
          {kSendForward, kReceiveForward, kSendBackward, kReceiveBackward}) {
        const Action transfer{stage, kind, micro_batch};
        check_count(transfer, transfers && has_edge(schedule, transfer));
      }
    }
  }
}

}  // namespace

void check_schedule(const Schedule& schedule) {
  check_shape(schedule);
  check_counts(schedule);
  execution_order(schedule);
}

}  // namespace lockstep
