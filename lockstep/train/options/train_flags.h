#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/flags/flag_table.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// All flags of `lockstep train`. The command line, its help, config.toml, the comparison before a
/// run is resumed and the plan of a dry run are made from it.
///
/// Those of launch_flags(), --nproc-per-node, --dry-run and --json have no reader here.
const FlagTable<TrainOptions>& train_flags();

/// The launcher's part of the command line of `lockstep train`.
struct LaunchFlags {
  std::string log_dir;
  std::optional<int> max_restarts;
  bool spares = false;
  std::string hang_timeout;
  std::chrono::milliseconds grace_period{30'000};
  bool pin = true;
  bool oversubscribe = false;
};

const FlagTable<LaunchFlags>& launch_flags();

}  // namespace lockstep
