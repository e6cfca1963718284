#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/flags/flag_spec.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/snapshot/run_lock.h"

namespace lockstep::cli {

/// A request to `lockstep train`, cut into the part about the start of the ranks and the rest.
struct TrainLaunch {
  launch::LaunchOptions options;
  std::vector<std::string> rest;             ///< for lockstep-train, unchanged
  GivenFlags given;                          ///< all flags
  std::unique_ptr<const RunLock> logs = {};  ///< while it lives, no other launcher writes there

  /// Says whether a launcher is of use: one rank that is neither to be restarted nor watched is run
  /// as it is.
  bool needs_a_launcher() const {
    return options.workers > 1 || options.max_restarts > 0 || given.has("--hang-timeout");
  }
};

/// Takes out of the flags of `lockstep train` those that its table has for the launcher, and
/// refuses unknown ones.
///
/// Several ranks are restarted up to 3 times unless it says otherwise. Rank 0 writes to our
/// terminal itself, the others are shown when they fail. `--nproc-per-node auto` counts cores where
/// `--device cpu` is given.
TrainLaunch parse_train_launch(const std::vector<std::string>& arguments,
    const launch::Processors& host = launch::processors());

/// Has the ranks above 0 write to logs/ in the run's folder, unless `--log-dir` says otherwise.
///
/// The logs of a run that continues in its folder are continued. Bad flags are refused
/// (InvalidArgument) before any rank is started, and the folder is fixed, so that all ranks mean
/// the same one. A dry run makes nothing; launchers on several nodes keep no logs unless asked.
void keep_logs_with_run(TrainLaunch& plan);

/// Lets a stop signal that comes before `lockstep train` can answer it wait in its ranks, which it
/// would end otherwise.
void hold_stops(launch::LaunchOptions& options);

/// Says whether the ranks to start are `lockstep train` of this very program.
bool starts_train(const launch::LaunchOptions& options);

}  // namespace lockstep::cli
