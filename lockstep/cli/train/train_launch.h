#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

/// Is what `lockstep train` was asked for, cut into what concerns the start of the ranks and all
/// else.
struct TrainLaunch {
  launch::LaunchOptions options;
  std::vector<std::string> rest;  ///< for lockstep-train, unchanged

  /// Says whether a launcher is of use: one rank that is not to be restarted is run as it is.
  bool needs_a_launcher() const { return options.workers > 1 || options.max_restarts > 0; }
};

/// Takes `--nproc-per-node`, `--no-pin`, `--grace-period`, `--max-restarts` and `--log-dir` out of
/// the flags of `lockstep train`. Several ranks are restarted up to 3 times unless it says
/// otherwise. Rank 0 writes to our terminal itself, the others are shown when they fail.
TrainLaunch parse_train_launch(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
