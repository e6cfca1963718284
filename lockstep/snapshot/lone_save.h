#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep {

/// Saves a snapshot of which one rank holds all, without the others: no collective. Returns once it
/// is durable; false if it is there already, or another rank that lost its peers is writing the
/// same. `keep` is that of SnapshotSaverOptions.
///
/// Throws std::system_error for what the disk does not take; then those before are as they were.
bool save_alone(
    const std::filesystem::path& run, int keep, std::int64_t step, const SnapshotPart& part);

}  // namespace lockstep
