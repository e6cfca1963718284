#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// Returns whether the schedule holds transfers, as with_transfers makes them.
bool has_transfers(const Schedule& schedule);

/// Returns whether the stages before and after an edge (stage, stage + 1) are on different ranks.
bool crosses_ranks(const Schedule& schedule, int stage);

/// Returns whether the action is a receive.
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::kReceiveForward || kind == ActionKind::kReceiveBackward;
}

/// Numbers what can happen to a micro-batch in a stage, so that it can index a vector of
/// number_of_events(). Both kinds of backward that make the input's gradient are one event.
std::size_t event_of(const Schedule& schedule, const Action& action);
std::size_t number_of_events(const Schedule& schedule);

/// Returns the actions whose events must have happened before this one can start.
std::vector<Action> needs_of(const Schedule& schedule, bool transfers, const Action& action);

/// An action and the rank that does it.
struct PlacedAction {
  int rank = 0;
  Action action = {};
};

/// Returns all actions in an order in which they can happen, each rank's in its own order. Throws
/// InvalidArgument that names an action which can never start.
std::vector<PlacedAction> execution_order(const Schedule& schedule);

}  // namespace lockstep
