#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/launch/child_process.h"

namespace lockstep::launch {

/// The new facts of one attempt: one start of all processes of a group.
struct AttemptPlan {
  int restart = 0;            ///< how many attempts there were before
  std::int64_t death_ns = 0;  ///< when the last of them failed, on the monotonic clock; 0: none did
};

/// The end of one attempt.
struct AttemptEnd {
  int code = 0;                       ///< what the run returns if this attempt was its last
  std::optional<ExitStatus> failure;  ///< of the process that failed first
  std::optional<int> signal;          ///< the first one that came from outside
  std::optional<std::int64_t> step;   ///< the furthest that was reported; nothing if none was
  double seconds = 0;                 ///< from its start to its end
};

/// The rules for restarting a group.
struct RestartRules {
  int most = 0;  ///< restarts in all
  /// The processes' codes mean what ExitCode says; without it any failure is worth a restart, as
  /// under torchrun.
  bool lockstep_codes = false;
};

/// The facts about earlier attempts that the decision needs.
struct RestartHistory {
  int restarts = 0;
  std::optional<std::int64_t> furthest;  ///< step of any attempt; nothing if none was reported
  int code_at_furthest = 0;              ///< of the attempt that first came that far
  int loops = 0;  ///< attempts in a row that failed soon and reported no further step
};

/// The decision after the end of an attempt.
struct NextAttempt {
  bool starts = false;
  int code = 0;                   ///< the run's, if none starts
  std::string reason;             ///< why none starts after a failure; may be empty
  RestartHistory history;         ///< with this attempt in it
  std::chrono::seconds pause{0};  ///< before it starts
};

/// Returns the pause before another attempt after so many in a row that failed soon: 0, 1, 2, 4,
/// ... 60 seconds. The first is never delayed: what failed once by chance may go on at once.
std::chrono::seconds back_off(int loops);

/// Decides whether the group is started again.
///
/// An attempt that did no step, or died at the very step at which the furthest one died, has made
/// no progress, and another would not either: the run ends, with the code of the attempt that first
/// came that far. So even a large number of restarts never becomes an endless loop, and restarts
/// are not given back after progress. An attempt that died on its way back to that step only
/// counts: that is chance. Programs that report no steps are only counted. A signal n from outside
/// ends the run where a restart would have followed: with 128+n, or with kStopped if the processes
/// know that code, as the restart would have begun with what is saved. Attempts that fail within
/// ten seconds and come no further than those before are a loop, and get pauses between them.
NextAttempt next_attempt(
    const RestartRules& rules, const RestartHistory& history, const AttemptEnd& end);

/// Returns the code of a run that a signal has ended where a restart would have followed.
int code_of_stop(const RestartRules& rules, int signal);

/// Returns whether one of our processes that ended like this may do better in another attempt: not
/// after bad flags, bad data, an environment that needs repair, divergence, or a request to end.
bool is_worth_a_restart(const ExitStatus& status);

}  // namespace lockstep::launch
