#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/process.h"

namespace lockstep {

/// The hosts of a run that do not share its folder: which of them keep each snapshot whole, and
/// which rank of each reads and writes there.
///
/// A value, empty where all hosts share the folder: then rank 0 makes each snapshot for all.
class SnapshotHosts {
 public:
  SnapshotHosts() = default;

  /// Lets the first `copies` hosts keep snapshots, or all if there are fewer; 0 makes an empty
  /// value. Ranks are of one host exactly if their texts are equal. A collective.
  SnapshotHosts(
      const ProcessGroup& world, int copies, const std::string& own_host = host_identity());

  bool are_apart() const { return group_.has_value(); }

  /// Returns a group of all ranks that nothing but snapshots uses, so that their threads may. Its
  /// calls wait as long as files take: that a rank is lost is found in world(), and then this one
  /// is to be aborted.
  const ProcessGroup& group() const { return *group_; }

  /// Returns the group that the other one was made of.
  const ProcessGroup& world() const { return *world_; }

  /// Returns the first rank of each host.
  const std::vector<int>& leaders() const { return leaders_; }

  /// Returns those of them whose host keeps snapshots.
  const std::vector<int>& keepers() const { return keepers_; }

  bool leads() const;  ///< this rank is the first of its host
  bool keeps() const;  ///< and its host keeps snapshots

 private:
  std::optional<ProcessGroup> world_, group_;
  std::vector<int> leaders_, keepers_;
};

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
