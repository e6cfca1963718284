#include "lockstep/parallel/schedule/execution_order.h"

#include <algorithm>

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

// Runs the ranks in turn, each as far as it can.
class Execution {
 public:
  explicit Execution(const Schedule& schedule)
      : schedule_(schedule),
        transfers_(has_transfers(schedule)),
        happened_(number_of_events(schedule)),
        next_(schedule.actions.size()) {}

  bool advance(std::size_t rank) {
    const auto& actions = schedule_.actions[rank];
    const std::size_t before = next_[rank];
    for (; next_[rank] < actions.size(); ++next_[rank]) {
      const Action& action = actions[next_[rank]];
      if (!missing_for(action).empty()) break;
      happened_[event_of(schedule_, action)] = true;
      order_.push_back({static_cast<int>(rank), action});
    }
    return next_[rank] != before;
  }

  void check_complete() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] == schedule_.actions[rank].size()) continue;
      const Action& action = schedule_.actions[rank][next_[rank]];
      throw InvalidArgument(concat("schedule: rank ", rank, " waits forever in ", to_string(action),
          ": ", to_string(missing_for(action).front()), " never comes before it"));
    }
  }

  std::vector<PlacedAction> order() && { return std::move(order_); }

 private:
  std::vector<Action> missing_for(const Action& action) const {
    std::vector<Action> needs = needs_of(schedule_, transfers_, action);
    std::erase_if(needs, [&](const Action& need) { return happened_[event_of(schedule_, need)]; });
    return needs;
  }

  const Schedule& schedule_;
  bool transfers_;
  std::vector<bool> happened_;
  std::vector<std::size_t> next_;  // per rank
  std::vector<PlacedAction> order_;
};

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
  Execution execution(schedule);
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
      progress = execution.advance(rank) || progress;
    }
  }
  execution.check_complete();
  return std::move(execution).order();
}

}  // namespace lockstep
