#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/snapshot/snapshot_hosts.h"
#include "lockstep/snapshot/snapshot_reader.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/run_state.h"

namespace lockstep {

/// The state that a start of a run begins with.
struct StartingPoint {
  std::shared_ptr<const SnapshotReader> snapshot;  ///< null: a fresh start
  RunState state;                                  ///< of the snapshot; else that of a fresh start
  std::vector<std::string> remarks;                ///< which snapshots were refused and why
  std::string announcement;                        ///< from where it goes on, if it was to
  bool replaces = false;  ///< what the folder holds of a run is to be removed
};

/// Finds the snapshot that the options ask for, opened. Hosts that share no folder give each other
/// the newest one of the options' output first; one that was named elsewhere must be readable on
/// all of them. A collective.
///
/// The state has the run's id: that of the snapshot if the run goes on in the same folder, else a
/// new one.
///
/// Throws DataError when the one that was named cannot be used, when one was made with other data
/// or another configuration than today's, which lists the differences, and when hosts have
/// snapshots of different runs. Throws InvalidArgument
/// when there is none to go on from, but the folder holds a finished run or one of another
/// configuration. With `--overwrite` both are replaced instead; removing them is the caller's.
StartingPoint find_starting_point(const TrainOptions& options, const DataIdentity& data,
    const ProcessGroup& world, const SnapshotHosts& hosts = {});

}  // namespace lockstep
