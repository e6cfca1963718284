#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep {

/// A snapshot that is being written: aside, so that it appears whole or not at all.
///
/// One rank begins it, the others join it by its path. Each writes its files; the one that began
/// gathers what they hold and commits. Every failure of the operating system is a std::system_error
/// with operation and path. After one that snapshot is lost: nothing more can be written, and a new
/// one must be begun, whose files have new names; what the disk once failed to take is not trusted.
/// Use one object from one thread at a time.
///
///     auto pending = PendingSnapshot::begin(SnapshotFolder("runs/7"), 1200);
///     manifest.files.push_back(pending.write("model.safetensors", write));
///     manifest.files.push_back(pending.write("state.json", state));
///     pending.commit(manifest);
class PendingSnapshot {
 public:
  using Fill = std::function<void(ByteSink&)>;

  /// Makes RUN/snapshots if it is missing, and in it a folder of a name that nobody had before,
  /// which only this user may enter.
  static PendingSnapshot begin(const SnapshotFolder& folder, std::int64_t step);

  /// Does the same under a name of aside_name(), so that others can learn it first.
  static PendingSnapshot begin(const SnapshotFolder& folder, const std::string& aside);

  /// Opens the folder that another rank began; a path that is none of those is a DataError.
  static PendingSnapshot join(const std::filesystem::path& aside);

  PendingSnapshot(PendingSnapshot&& other) noexcept;
  PendingSnapshot& operator=(PendingSnapshot&&) = delete;

  /// Removes what was not committed, if this object began it.
  ~PendingSnapshot();

  /// Returns the folder in which it is written, for join().
  const std::filesystem::path& path() const { return folder_.path(); }
  std::int64_t step() const { return step_; }

  /// Writes a file, hashes it on the way and waits until the disk has it. A name that
  /// is_file_name() does not know is an InvalidArgument; one that is taken is a std::system_error.
  SnapshotFile write(const std::string& name, std::string_view text);

  /// Does the same with what `fill` writes into the sink.
  SnapshotFile write(const std::string& name, const Fill& fill);

  /// Makes the snapshot appear and returns its path; for the rank that began it, once all have
  /// written. `manifest.files` are the files of all ranks; an empty `manifest.lockstep` becomes
  /// this library's version.
  ///
  /// Writes the manifest, reads every file back from the disk and compares, renames the folder
  /// (not if parts of a tensor are missing, which is a DataError),
  /// waits until the disk has the name, and then replaces LATEST. A snapshot of the same step that
  /// is there already (of an earlier start) is exchanged in one step; on a file system that cannot
  /// do that, a good one stays and a broken one goes.
  ///
  /// When this throws, the snapshots that were there are as they were, and the new one is not
  /// there; unless only LATEST could not be replaced, then the new one stays.
  std::filesystem::path commit(SnapshotManifest manifest);

 private:
  PendingSnapshot(OpenDirectory snapshots, OpenDirectory folder, std::int64_t step);

  SnapshotFile write_file(const std::string& name, const Fill& fill);
  void write_manifest(const SnapshotManifest& manifest);
  void verify(const SnapshotManifest& manifest) const;
  bool publish(const std::string& name);
  bool exchange(const std::string& name);
  bool give_way(const std::string& name);
  void remove_aside() noexcept;

  OpenDirectory snapshots_;
  OpenDirectory folder_;
  std::int64_t step_;
  std::string aside_;  ///< what to remove at the end: a name in snapshots_, or empty
  bool is_mine_ = false;
  bool failed_ = false;
};

}  // namespace lockstep
