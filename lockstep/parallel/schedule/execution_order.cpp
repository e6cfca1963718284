#include "lockstep/parallel/schedule/execution_order.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using enum ActionKind;

constexpr std::size_t kKinds = 8;

std::vector<Action> backward_needs(const Schedule& schedule, bool transfers, const Action& action) {
  const auto& [stage, kind, micro_batch] = action;
  std::vector<Action> needs{{stage, kForward, micro_batch}};
  if (stage + 1 == schedule.stages) return needs;
  if (transfers && crosses_ranks(schedule, stage)) {
    needs.push_back({stage, kReceiveBackward, micro_batch});
  } else {
    needs.push_back({stage + 1, kBackward, micro_batch});
  }
  return needs;
}

std::vector<Action> forward_needs(const Schedule& schedule, bool transfers, const Action& action) {
  const auto& [stage, kind, micro_batch] = action;
  if (stage == 0) return {};
  if (transfers && crosses_ranks(schedule, stage - 1)) {
    return {{stage, kReceiveForward, micro_batch}};
  }
  return {{stage - 1, kForward, micro_batch}};
}

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

struct Transfer {
  Action send;
  Action receive;
};

std::optional<Transfer> transfer_after(const Schedule& schedule, const Action& action) {
  const auto& [stage, kind, micro_batch] = action;
  if (kind == kForward && stage + 1 < schedule.stages && crosses_ranks(schedule, stage)) {
    return Transfer{{stage, kSendForward, micro_batch}, {stage + 1, kReceiveForward, micro_batch}};
  }
  const bool makes_gradient = kind == kBackward || kind == kBackwardInput;
  if (makes_gradient && stage > 0 && crosses_ranks(schedule, stage - 1)) {
    return Transfer{
        {stage, kSendBackward, micro_batch}, {stage - 1, kReceiveBackward, micro_batch}};
  }
  return std::nullopt;
}

// Note [Transfers]
// The ranks go round by round, at most one action each, as in the tables of unit times; PyTorch's
// pipelining does the same. A rank that computes a value for another writes both the send and, into
// the other's list, the receive. So all sends and receives have one common order, and ranks that
// follow their lists cannot wait for each other in a circle.
Schedule with_posted_receives(const Schedule& schedule) {
  constexpr int kNever = std::numeric_limits<int>::max();
  std::vector<int> happened_in(number_of_events(schedule), kNever);  // the round of each event
  std::vector<std::size_t> next(schedule.actions.size());            // per rank
  Schedule result = schedule;
  for (auto& actions : result.actions) actions.clear();
  int round = 0;
  const auto can_start = [&](const Action& action) {
    const auto needs = needs_of(schedule, true, action);
    return std::ranges::all_of(
        needs, [&](const Action& need) { return happened_in[event_of(schedule, need)] < round; });
  };
  const auto add = [&](const Action& action) {
    happened_in[event_of(schedule, action)] = round;
    result.actions[static_cast<std::size_t>(schedule.rank_of(action.stage))].push_back(action);
  };
  for (bool progress = true; progress;) {
    progress = false;
    ++round;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      const auto& actions = schedule.actions[rank];
      if (next[rank] == actions.size() || !can_start(actions[next[rank]])) continue;
      const Action& action = actions[next[rank]++];
      progress = true;
      add(action);
      if (const auto transfer = transfer_after(schedule, action)) {
        add(transfer->send);
        add(transfer->receive);
      }
    }
  }
  return result;
}

std::vector<Action> with_late_receives(
    const Schedule& schedule, const std::vector<Action>& actions) {
  std::vector<Action> result;
  for (const Action& action : actions) {
    if (is_receive(action.kind)) continue;
    if (is_compute(action.kind)) {
      std::ranges::copy_if(
          needs_of(schedule, true, action), std::back_inserter(result), is_receive, &Action::kind);
    }
    result.push_back(action);
  }
  return result;
}

bool is_own_weight(const Action& input, const Action& weight) {
  return input.kind == kBackwardInput &&
         weight == Action{input.stage, kBackwardWeight, input.micro_batch};
}

std::vector<Action> merged(const std::vector<Action>& actions) {
  std::vector<Action> result;
  for (const Action& action : actions) {
    if (!result.empty() && is_own_weight(result.back(), action)) {
      result.back().kind = kBackward;
    } else {
      result.push_back(action);
    }
  }
  return result;
}

}  // namespace

bool has_transfers(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& actions) {
    return std::ranges::any_of(
        actions, [](const Action& action) { return !is_compute(action.kind); });
  });
}

bool crosses_ranks(const Schedule& schedule, int stage) {
  return schedule.rank_of(stage) != schedule.rank_of(stage + 1);
}

std::size_t event_of(const Schedule& schedule, const Action& action) {
  const ActionKind kind = action.kind == kBackwardInput ? kBackward : action.kind;
  const auto stage = static_cast<std::size_t>(action.stage);
  const auto micro_batches = static_cast<std::size_t>(schedule.micro_batches);
  return (stage * kKinds + static_cast<std::size_t>(kind)) * micro_batches +
         static_cast<std::size_t>(action.micro_batch);
}

std::size_t number_of_events(const Schedule& schedule) {
  return static_cast<std::size_t>(schedule.stages) * kKinds *
         static_cast<std::size_t>(schedule.micro_batches);
}

std::vector<Action> needs_of(const Schedule& schedule, bool transfers, const Action& action) {
  const auto& [stage, kind, micro_batch] = action;
  switch (kind) {
    case kForward:
      return forward_needs(schedule, transfers, action);
    case kBackward:
    case kBackwardInput:
      return backward_needs(schedule, transfers, action);
    case kBackwardWeight:
    case kSendBackward:
      return {{stage, kBackward, micro_batch}};
    case kSendForward:
      return {{stage, kForward, micro_batch}};
    case kReceiveForward:
      return {{stage - 1, kSendForward, micro_batch}};
    case kReceiveBackward:
      return {{stage + 1, kSendBackward, micro_batch}};
  }
  return {};
}

std::vector<PlacedAction> execution_order(const Schedule& schedule) {
  const bool transfers = has_transfers(schedule);
  std::vector<bool> happened(number_of_events(schedule));
  std::vector<std::size_t> next(schedule.actions.size());  // per rank
  std::vector<PlacedAction> order;
  const auto missing_for = [&](const Action& action) {
    std::vector<Action> needs = needs_of(schedule, transfers, action);
    std::erase_if(needs, [&](const Action& need) { return happened[event_of(schedule, need)]; });
    return needs;
  };
  // The ranks take turns, each as far as it can go.
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      for (const auto& actions = schedule.actions[rank]; next[rank] < actions.size();
           ++next[rank]) {
        const Action& action = actions[next[rank]];
        if (!missing_for(action).empty()) break;
        happened[event_of(schedule, action)] = true;
        order.push_back({static_cast<int>(rank), action});
        progress = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] == schedule.actions[rank].size()) continue;
    const Action& action = schedule.actions[rank][next[rank]];
    throw InvalidArgument(concat("schedule: rank ", rank, " waits forever in ", to_string(action),
        ": ", to_string(missing_for(action).front()), " never comes before it"));
  }
  return order;
}

void check_schedule(const Schedule& schedule) {
  check_shape(schedule);
  check_counts(schedule);
  execution_order(schedule);
}

Schedule with_transfers(const Schedule& schedule, Receives receives) {
  check(!has_transfers(schedule), "with_transfers: the schedule has transfers already");
  check_schedule(schedule);
  Schedule result = with_posted_receives(schedule);
  if (receives == Receives::kPosted) return result;
  for (auto& actions : result.actions) actions = with_late_receives(schedule, actions);
  return result;
}

Schedule with_merged_backward(const Schedule& schedule) {
  Schedule result = schedule;
  for (auto& actions : result.actions) actions = merged(actions);
  return result;
}

}  // namespace lockstep
