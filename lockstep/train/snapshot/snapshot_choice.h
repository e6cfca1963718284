#pragma once

#include <filesystem>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/snapshot/snapshot_folder.h"

namespace lockstep {

/// Finds the newest usable snapshot of a run, the same on all ranks: rank 0 reads and verifies,
/// once for all. A collective; what rank 0 cannot read is an error on every rank.
SnapshotChoice newest_snapshot(const std::filesystem::path& run, const ProcessGroup& world);

/// Verifies one snapshot, the same on all ranks; a broken one is a DataError on every rank. A
/// collective.
SnapshotChoice verified_snapshot(const std::filesystem::path& snapshot, const ProcessGroup& world);

}  // namespace lockstep
