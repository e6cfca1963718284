#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {
namespace {

using enum ActionKind;

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
class TransferInsertion {
 public:
  explicit TransferInsertion(const Schedule& schedule)
      : schedule_(schedule),
        happened_in_(number_of_events(schedule), kNever),
        next_(schedule.actions.size()),
        result_(schedule) {
    for (auto& actions : result_.actions) actions.clear();
  }

  bool run_round() {
    ++round_;
    bool progress = false;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) progress = advance(rank) || progress;
    return progress;
  }

  Schedule result() && { return std::move(result_); }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();

  bool advance(std::size_t rank) {
    if (next_[rank] == schedule_.actions[rank].size()) return false;
    const Action& action = schedule_.actions[rank][next_[rank]];
    if (!can_start(action)) return false;
    ++next_[rank];
    add(action);
    if (const auto transfer = transfer_after(schedule_, action)) {
      add(transfer->send);
      add(transfer->receive);
    }
    return true;
  }

  bool can_start(const Action& action) const {
    const auto needs = needs_of(schedule_, true, action);
    return std::ranges::all_of(needs,
        [&](const Action& need) { return happened_in_[event_of(schedule_, need)] < round_; });
  }

  void add(const Action& action) {
    happened_in_[event_of(schedule_, action)] = round_;
    result_.actions[static_cast<std::size_t>(schedule_.rank_of(action.stage))].push_back(action);
  }

  const Schedule& schedule_;
  int round_ = 0;
  std::vector<int> happened_in_;   // the round of each event
  std::vector<std::size_t> next_;  // per rank
  Schedule result_;
};

bool receives(const Action& action) {
  return action.kind == kReceiveForward || action.kind == kReceiveBackward;
}

std::vector<Action> with_late_receives(
    const Schedule& schedule, const std::vector<Action>& actions) {
  std::vector<Action> result;
  for (const Action& action : actions) {
    if (receives(action)) continue;
    if (is_compute(action.kind)) {
      std::ranges::copy_if(needs_of(schedule, true, action), std::back_inserter(result), receives);
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

Schedule with_transfers(const Schedule& schedule, Receives receives) {
  check(!has_transfers(schedule), "with_transfers: the schedule has transfers already");
  check_schedule(schedule);
  TransferInsertion insertion(schedule);
  while (insertion.run_round()) {
  }
  Schedule result = std::move(insertion).result();
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
