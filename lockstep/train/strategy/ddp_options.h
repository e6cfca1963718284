#pragma once

#include "lockstep/nn/grad_scaler.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Returns how the replicas of `ddp` are kept alike. The scaler is that of their losses, and
/// outlives what is made with the options.
DistributedDataParallelOptions ddp_options(
    const TrainOptions& options, const nn::GradScaler& scaler);

}  // namespace lockstep
