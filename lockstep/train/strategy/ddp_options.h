#pragma once

#include "lockstep/parallel/ddp/gradient_sync.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Returns how the replicas of `ddp` are kept alike.
DistributedDataParallelOptions ddp_options(const TrainOptions& options);

}  // namespace lockstep
