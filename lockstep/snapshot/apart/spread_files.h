#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/snapshot/pending_snapshot.h"
#include "lockstep/snapshot/snapshot_files.h"

namespace lockstep {

/// A file of a snapshot that one rank has, for all hosts.
struct OwnFile {
  WrittenFile facts;  ///< its name, and what an index needs; size and hash are found on the way
  std::function<void(ByteSink&)> write;
};

/// Gives the files of all ranks to those of `receivers`, each of which has begun a snapshot. One of
/// these gets the facts of all files, in the order of their ranks; the others get an empty list.
///
/// If anything fails on any rank, `failure` before this call included, this throws it there, and
/// returns nothing on the others: either all receivers have all files, or nobody may commit. A
/// collective, in which no rank waits for one that has failed, unless its process is gone.
std::optional<std::vector<WrittenFile>> spread_files(const ProcessGroup& group,
    const std::vector<int>& receivers, PendingSnapshot* pending, const std::vector<OwnFile>& own,
    std::exception_ptr failure = nullptr);

}  // namespace lockstep
