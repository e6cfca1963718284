#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/open_directory.h"
#include "lockstep/snapshot/manifest.h"

namespace lockstep {

/// A snapshot that cannot be used, and why.
struct SnapshotRefusal {
  std::string name;  ///< of its folder
  std::string reason;
};

/// The result of a search.
struct SnapshotChoice {
  std::filesystem::path path;  ///< empty if there is none
  SnapshotManifest manifest;
  std::vector<SnapshotRefusal> refused;  ///< those that are newer, the newest first
};

/// The folder RUN/snapshots of a run.
///
/// It may be missing, then there are no snapshots. A link in its place, or one that belongs to
/// another user, is a DataError in every function; what the operating system refuses is a
/// std::system_error.
///
///     SnapshotFolder folder("runs/7");
///     const SnapshotChoice found = folder.newest();
///     for (const auto& bad : found.refused) std::cerr << bad.name << ": " << bad.reason << '\n';
class SnapshotFolder {
 public:
  explicit SnapshotFolder(std::filesystem::path run) : run_(std::move(run)) {}

  const std::filesystem::path& run() const { return run_; }
  std::filesystem::path path() const;

  /// Finds the snapshot of the highest step that verify_snapshot() accepts. LATEST is not looked
  /// at: it is for people.
  SnapshotChoice newest() const;

  /// Returns the snapshot that the file `best` names; an empty path if there is none. A file that
  /// names none, or one that is not there, is a DataError.
  std::filesystem::path best() const;

  /// Makes the snapshot of this step the best one: it is never pruned while it is.
  void set_best(std::int64_t step) const;

  /// Removes old snapshots. The one of `step` stays, which was just committed, with the next older
  /// ones so that there are `keep` (at least 1) whose files are there in full size; those between
  /// them that are broken, the best one, and all of later steps stay, too.
  void prune(int keep, std::int64_t step) const;

  /// Removes what saves left that did not end. Only while none is under way.
  void remove_leftovers() const;

  /// Removes all snapshots, what names them, and the folder if nothing else is in it.
  void clear() const;

 private:
  bool is_there() const;
  OpenDirectory open() const;

  std::filesystem::path run_;
};

/// Makes the id of a new run.
std::string new_run_id();

/// Returns the id in a state.json, of which nothing else is read; empty if there is none. Throws
/// DataError for text that is not strict JSON, or too long.
std::string run_id_in(std::string_view json, const std::string& file);

/// Returns the id of the run in an output folder: that of its newest snapshot which can be read;
/// empty if there is none.
std::string run_id_of_folder(const std::filesystem::path& output);

}  // namespace lockstep
