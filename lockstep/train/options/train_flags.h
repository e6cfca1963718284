#pragma once

#include "lockstep/flags/flag_table.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Upper limits. Products of several of them fit into 64 bits.
inline constexpr double kMostEpochs = 1'000'000;
inline constexpr double kMostSteps = 1'000'000'000'000;
inline constexpr double kMostBatches = 100'000'000;

/// All flags of `lockstep train`. The command line, its help, config.toml, the comparison before a
/// run is resumed and the plan of a dry run are made from it.
///
/// Flags that concern the start of the ranks, and --dry-run and --json, have no reader: the caller
/// asks GivenFlags for them.
const FlagTable<TrainOptions>& train_flags();

/// The flags of `lockstep train` that say where and how a model is spread, and how ranks start.
FlagGroup<TrainOptions> spreading_group();
FlagGroup<TrainOptions> stages_group();
FlagGroup<TrainOptions> launch_group();

/// Those that say how a model learns.
FlagGroup<TrainOptions> optimizer_group();
FlagGroup<TrainOptions> rate_group();
FlagGroup<TrainOptions> average_group();

}  // namespace lockstep
