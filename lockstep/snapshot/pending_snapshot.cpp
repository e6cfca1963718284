#include "lockstep/snapshot/pending_snapshot.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/tensor_group.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Small enough that what was hashed is still in the processor's cache when it is written.
constexpr std::size_t kHashedAtOnce = std::size_t{1} << 18;

/// A new file of a snapshot that is hashed while it is written.
class HashedFile final : public ByteSink {
 public:
  HashedFile(const OpenDirectory& folder, const std::string& name)
      : facts_{.name = name, .bytes = 0, .sha256 = {}}, file_(folder, name) {}

  /// Waits until the disk has the file and returns what it holds. Write nothing afterwards.
  SnapshotFile finish() {
    file_.sync();
    file_.close();
    facts_.sha256 = digest_.finish();
    return facts_;
  }

 private:
  void put(std::span<const std::uint8_t> bytes) override {
    facts_.bytes += bytes.size();
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(kHashedAtOnce, bytes.size()));
      digest_.update(piece);
      file_.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  }

  SnapshotFile facts_;
  OutputFile file_;
  Sha256 digest_;
};

/// Opens RUN/snapshots and makes it first if it is missing.
OpenDirectory made_snapshots(const fs::path& run) {
  make_folders(run);
  const OpenDirectory folder = OpenDirectory::open(run);
  if (!folder.has(kSnapshots)) {
    if (::mkdirat(folder.descriptor(), kSnapshots, mode_t{0755}) != 0 && errno != EEXIST) {
      throw_errno("make the folder", folder.path_of(kSnapshots));
    }
    folder.sync();
  }
  return folder.child(kSnapshots);
}

std::int64_t checked_step_of(const std::string& aside) {
  if (const auto step = step_of_aside(aside)) return *step;
  throw DataError(printable(aside) + ": is no name of a folder in which a snapshot is written");
}

int rename_in(const OpenDirectory& folder, const std::string& from, const std::string& to) {
  return ::renameat(folder.descriptor(), from.c_str(), folder.descriptor(), to.c_str());
}

int exchange_in(const OpenDirectory& folder, const std::string& one, const std::string& other) {
  const int descriptor = folder.descriptor();
  return ::renameat2(descriptor, one.c_str(), descriptor, other.c_str(), RENAME_EXCHANGE);
}

}  // namespace

PendingSnapshot::PendingSnapshot(OpenDirectory snapshots, OpenDirectory folder, std::int64_t step)
    : snapshots_(std::move(snapshots)), folder_(std::move(folder)), step_(step) {}

PendingSnapshot::PendingSnapshot(PendingSnapshot&& other) noexcept
    : snapshots_(std::move(other.snapshots_)),
      folder_(std::move(other.folder_)),
      step_(other.step_),
      aside_(std::exchange(other.aside_, std::string())),
      is_mine_(other.is_mine_),
      failed_(std::exchange(other.failed_, true)) {}

PendingSnapshot::~PendingSnapshot() { remove_aside(); }

PendingSnapshot PendingSnapshot::begin(const SnapshotFolder& folder, std::int64_t step) {
  return begin(folder, aside_name(step));
}

PendingSnapshot PendingSnapshot::begin(const SnapshotFolder& folder, const std::string& aside) {
  const std::int64_t step = checked_step_of(aside);
  const std::string name = snapshot_name(step);
  OpenDirectory snapshots = made_snapshots(folder.run());
  // What has that name must be a folder of ours: it will be exchanged.
  if (snapshots.has(name)) snapshots.child(name);
  if (::mkdirat(snapshots.descriptor(), aside.c_str(), mode_t{0700}) != 0) {
    throw_errno("make the folder", snapshots.path_of(aside));
  }
  try {
    PendingSnapshot pending(snapshots, snapshots.child(aside), step);
    pending.aside_ = aside;
    pending.is_mine_ = true;
    return pending;
  } catch (...) {
    ::unlinkat(snapshots.descriptor(), aside.c_str(), AT_REMOVEDIR);
    throw;
  }
}

PendingSnapshot PendingSnapshot::join(const fs::path& aside) {
  const std::string name = aside.filename().string();
  const auto step = step_of_aside(name);
  if (!step || aside.parent_path().filename() != kSnapshots) {
    throw DataError(aside.string() + ": is not a folder in which a snapshot is written");
  }
  OpenDirectory snapshots =
      OpenDirectory::open(aside.parent_path().parent_path()).child(kSnapshots);
  OpenDirectory folder = snapshots.child(name);
  return {std::move(snapshots), std::move(folder), *step};
}

SnapshotFile PendingSnapshot::write_file(const std::string& name, const Fill& fill) {
  check(!failed_, "a snapshot that failed or was committed takes no more: ", path().string());
  failed_ = true;
  HashedFile file(folder_, name);
  fill(file);
  SnapshotFile facts = file.finish();
  failed_ = false;
  return facts;
}

SnapshotFile PendingSnapshot::write(const std::string& name, std::string_view text) {
  return write(name, [&](ByteSink& sink) { sink.write(text); });
}

SnapshotFile PendingSnapshot::write(const std::string& name, const Fill& fill) {
  check(is_file_name(name), "a file of a snapshot cannot have the name ", printable(name));
  return write_file(name, fill);
}

fs::path PendingSnapshot::commit(SnapshotManifest manifest) {
  check(is_mine_, "only the rank that began a snapshot commits it: ", path().string());
  check(manifest.step == step_, "the manifest is that of step ", manifest.step,
      ", the snapshot that of step ", step_);
  if (manifest.lockstep.empty()) manifest.lockstep = LOCKSTEP_VERSION;
  write_manifest(manifest);
  failed_ = true;                         // whatever comes, nothing more is written here
  check_parts(manifest, folder_.path());  // what several ranks wrote, not what the disk made of it
  verify(manifest);
  const std::string name = snapshot_name(step_);
  const bool is_new = publish(name);
  if (!is_new) remove_aside();
  AtomicFile latest(snapshots_, kLatest);
  latest.write(name + '\n');
  latest.commit();
  return snapshots_.path() / name;
}

void PendingSnapshot::write_manifest(const SnapshotManifest& manifest) {
  const std::string json = to_json(manifest);
  write_file(kManifest, [&](ByteSink& sink) { sink.write(json); });
  if (::fchmod(folder_.descriptor(), 0755) != 0) throw_errno("set the mode of", path().string());
  folder_.sync();
}

void PendingSnapshot::verify(const SnapshotManifest& manifest) const {
  try {
    if (verify_files(folder_, ReadFrom::kDisk) == manifest) return;
    throw DataError(folder_.path_of(kManifest) + ": differs");
  } catch (const DataError& error) {
    // Nobody but the disk can have changed it.
    throw std::system_error(
        EIO, std::generic_category(), concat("read back what was just written: ", error.what()));
  }
}

/// Returns the folder the snapshot's name. Returns false if something is left under the aside name.
bool PendingSnapshot::publish(const std::string& name) {
  // Takes the place of an empty folder, and of nothing else.
  if (rename_in(snapshots_, aside_, name) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) {
      throw_errno("rename to", snapshots_.path_of(name));
    }
    if (exchange(name)) return false;
    if (give_way(name)) return false;
  }
  const std::string aside = std::exchange(aside_, std::string());
  try {
    snapshots_.sync();
  } catch (...) {
    // Readers must not see a folder that a power cut could still remove.
    if (rename_in(snapshots_, name, aside) == 0) aside_ = aside;
    throw;
  }
  return true;
}

/// Swaps the folder with the older one of its name, so that there is never none of that name.
/// Returns false if the file system cannot do that.
bool PendingSnapshot::exchange(const std::string& name) {
  if (exchange_in(snapshots_, aside_, name) != 0) {
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
    throw_errno("exchange with the older one", snapshots_.path_of(name));
  }
  try {
    snapshots_.sync();
  } catch (...) {
    // The older one must not be removed before the disk has the newer one's name.
    if (exchange_in(snapshots_, aside_, name) != 0) aside_.clear();
    throw;
  }
  return true;
}

/// Without an exchange there would be a moment without either. So an older one that is good stays:
/// both are the state after the same steps. Returns true then. A broken one is put out of the way.
bool PendingSnapshot::give_way(const std::string& name) {
  try {
    if (verify_files(snapshots_.child(name), ReadFrom::kAnywhere).step == step_) return true;
  } catch (const DataError&) {
    // It is useless.
  }
  const std::string broken = aside_name(step_);
  if (rename_in(snapshots_, name, broken) != 0 || rename_in(snapshots_, aside_, name) != 0) {
    throw_errno("replace the broken snapshot", snapshots_.path_of(name));
  }
  snapshots_.remove(broken);
  return false;
}

void PendingSnapshot::remove_aside() noexcept {
  if (aside_.empty()) return;
  try {
    snapshots_.remove(std::exchange(aside_, std::string()));
  } catch (const std::exception&) {
    // Left over; remove_leftovers() of the next start takes it.
  }
}

}  // namespace lockstep
