#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/launch/exit_status.h"

namespace lockstep::launch {

/// Says how one life of a group of workers ended.
struct LifeEnd {
  int code = 0;                       ///< what the run returns if this life was its last
  std::optional<ExitStatus> failure;  ///< of the worker that failed first
  std::optional<int> signal;          ///< the first one that came from outside
  std::optional<std::int64_t> step;   ///< the furthest that its workers reported; nothing if none
                                      ///< reports
};

/// Says when a group may be started again.
struct RestartRules {
  int most = 0;  ///< restarts in all
  /// The workers' codes mean what ExitCode says; without it any failure is worth a restart, as
  /// torchrun has it.
  bool lockstep_codes = false;
};

/// Is what the decision must know of the lives so far.
struct RestartHistory {
  int restarts = 0;
  std::optional<std::int64_t> furthest;  ///< step that any life came to; nothing if none reported
  int code_at_furthest = 0;              ///< with which the life ended that came there first
};

/// Is the decision after the end of a life.
struct NextLife {
  bool starts = false;
  int code = 0;            ///< the run's, if none starts
  std::string reason;      ///< why none starts after a failure; may be empty
  RestartHistory history;  ///< with this life in it
};

/// Decides whether the group is started again.
///
/// A life that did no step of its own, or died at the very step at which the furthest one died, has
/// made no progress, and another would not either: the run ends, with the code of the life that
/// came so far first. So a large number of restarts never becomes an endless loop, and restarts are
/// not given back after progress. A life that was struck on its way back to that step only counts:
/// that is chance.
/// Programs that report no steps are only counted. A signal from outside ends the run with 128+n
/// where a restart would have followed.
NextLife next_life(const RestartRules& rules, const RestartHistory& history, const LifeEnd& end);

/// Says whether a worker of ours that ended so may do better in another life: not after bad flags,
/// bad data, an environment that needs repair, divergence, or when somebody asked it to end.
bool is_worth_a_restart(const ExitStatus& status);

}  // namespace lockstep::launch
