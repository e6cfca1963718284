#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/launch/hang/stall.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep::launch {

/// Returns whether the ranks that are left after a failure may go on for now: one of them saves
/// what all have trained, or may be about to notice that it has lost its peers. One that has saved
/// is enough.
bool waits_for_rescue(const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure);

/// A request of other nodes about this node's ranks.
enum class EndOrder {
  kNone,
  kGently,
  kAtOnce,
  kHangs  ///< if they still only wait: those of all nodes do, and these are behind
};

/// The others of a world, while this node's ranks run.
class Outside {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Outside() = default;

  /// Returns a descriptor that becomes readable when something has come from them.
  virtual int descriptor() const = 0;

  /// Looks whether the ranks are to end; called after each event.
  virtual EndOrder look() = 0;

  /// Hears, at each look, what the ranks here do if all of them only wait for others without a sign
  /// of life; nothing if they do not.
  virtual void waits(const std::vector<RankSight>& ranks) = 0;

  /// Returns for what ranks of other nodes wait, where these are behind; may be empty.
  virtual const std::string& others() const = 0;

  /// Hears of the first failure of a rank here, in one sentence, before the others are ended.
  virtual void failed(const std::string& headline) = 0;
};

/// Runs this node's ranks once, from their start to the end of all that they started. Of ranks that
/// were ended by order the report says nothing. Outside may be none.
AttemptReport run_ranks_once(Supervisor& supervisor, const LaunchOptions& options,
    const AttemptPlan& plan, int master_port, Outside* outside);

}  // namespace lockstep::launch
