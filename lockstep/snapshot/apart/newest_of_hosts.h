#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/snapshot/apart/snapshot_hosts.h"

namespace lockstep {

/// Gives the newest usable snapshot that any host has of a run to each host that has another one or
/// none, so that every rank finds it in its own folder; unless `is_wanted`, which gets its
/// state.json and that file's path, and decides alike on all ranks, refuses it by an exception or
/// by false.
///
/// Throws DataError on all ranks, with hosts and reason, if their snapshots are of different runs,
/// of which nothing is copied or removed, or if one cannot be given or taken. A collective.
void spread_newest(const std::filesystem::path& run, const SnapshotHosts& hosts,
    const std::function<bool(const std::string& state, const std::string& file)>& is_wanted);

/// Looks on all hosts but the first for snapshots that a run which begins anew would mistake for
/// its own later: removes them if it `overwrites`, else throws InvalidArgument on all ranks. A
/// collective.
void check_no_other_run(
    const std::filesystem::path& run, const SnapshotHosts& hosts, bool overwrites);

/// Throws DataError on all ranks, with all of them, if hosts have snapshots of different runs. `id`
/// is that of the run in this rank's folder, empty if there is none. A collective.
void check_one_run(
    const std::string& id, const std::filesystem::path& folder, const ProcessGroup& world);

}  // namespace lockstep
