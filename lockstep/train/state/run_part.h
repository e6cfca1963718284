#pragma once

#include "lockstep/snapshot/snapshot_saver.h"
#include "lockstep/train/train_run.h"

namespace lockstep {

/// Returns what a rank of this role gives to a snapshot of a run, as it is after a step. Brings the
/// run's state up to date with its clocks and tensors.
///
/// If it `looks_later`, nothing waits for a device: the part has the scalars that will say whether
/// the run has diverged.
SnapshotPart run_part(TrainRun& run, const SnapshotRole& role, bool looks_later);

/// Returns the role of this rank.
SnapshotRole role_in(const TrainRun& run);

}  // namespace lockstep
