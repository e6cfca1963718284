#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/launch/hang/stall.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep::launch {

/// Returns whether the remaining ranks may go on for now after a failure: one of them saves what
/// all have trained, or may be about to notice that it has lost its peers. One save is enough.
bool waits_for_rescue(const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure);

/// A request of other nodes about this node's ranks.
enum class EndOrder {
  kNone,
  kGently,
  kAtOnce,
  kHangs  ///< if they still only wait: those of all nodes do, and these are behind
};

/// The other nodes, while this node's ranks run.
class OtherNodes {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~OtherNodes() = default;

  /// Returns a descriptor that becomes readable when they have sent something.
  virtual int descriptor() const = 0;

  /// Returns what they request now; called after each event.
  virtual EndOrder look() = 0;

  /// Takes, at each look, what the ranks here do if all of them only wait for others; else nothing.
  virtual void waits(const std::vector<RankSight>& ranks) = 0;

  /// Returns what ranks of other nodes wait for, where these are behind; may be empty.
  virtual const std::string& others() const = 0;

  /// Reports the first failure of a rank here, in one sentence, before the others are ended.
  virtual void failed(const std::string& headline) = 0;
};

/// Runs this node's ranks once, from their start to the end of all that they started. Ranks that
/// were ended by request are not reported. `other_nodes` may be null.
AttemptReport run_ranks_once(Supervisor& supervisor, const LaunchOptions& options,
    const AttemptPlan& plan, int master_port, OtherNodes* other_nodes);

}  // namespace lockstep::launch
