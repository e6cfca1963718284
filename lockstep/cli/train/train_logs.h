#pragma once

#include "lockstep/cli/train/train_launch.h"

namespace lockstep::cli {

/// Lets the ranks above 0 write to logs/ in the run's folder, unless `--log-dir` says otherwise.
///
/// The logs of a run that goes on in its folder are continued. Reads the flags as the ranks will,
/// so bad ones are refused (InvalidArgument) before any rank is started, and fixes the folder, so
/// all ranks mean the same one. A dry run makes nothing.
void keep_logs_with_run(TrainLaunch& plan);

}  // namespace lockstep::cli
