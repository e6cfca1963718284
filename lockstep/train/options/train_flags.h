#pragma once

#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// All flags of `lockstep train`. The command line, its help, config.toml, the comparison before a
/// run is resumed, the plan of a dry run and the table in docs/training.md are made from it.
///
/// Those of launch_flags(), --nproc-per-node, --dry-run and --json have no reader here.
const FlagTable<TrainOptions>& train_flags();

/// The flags of `lockstep train` about the start of the ranks, as its launcher reads them from the
/// same command line.
const FlagTable<launch::LaunchOptions>& launch_flags();

}  // namespace lockstep
