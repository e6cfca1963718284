#pragma once

#include "lockstep/core/flag_table.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The flags of `lockstep train` that say how a model learns.
FlagGroup<TrainOptions> optimizer_group();
FlagGroup<TrainOptions> rate_group();
FlagGroup<TrainOptions> average_group();

}  // namespace lockstep
