#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep::cli {

/// Is what `lockstep train` was asked to do.
struct TrainCommand {
  TrainOptions options;
  bool dry_run = false;
  bool json = false;
};

/// Is what the launcher's environment says about the ranks, and the clock for the default folder.
struct TrainSurroundings {
  int world_size = 1;
  int local_world_size = 1;
  std::int64_t unix_time = 0;
  int restart_count = 0;  ///< lives of this group of ranks before this one
};

/// Gives the text of `lockstep train --help`.
std::string train_help();

/// Reads the flags after `train`: nothing when they ask for help.
///
/// Underscores in flag names are taken as dashes, and of a flag given twice the last counts. Throws
/// InvalidArgument that names the flag, with a suggestion where one is near.
std::optional<TrainCommand> parse_train_flags(
    const std::vector<std::string>& arguments, const TrainSurroundings& surroundings);

}  // namespace lockstep::cli
