#include "lockstep/formats/snapshot/snapshot_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/utf8.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/retried.h"
#include "lockstep/formats/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;

/// Gives the bytes of an open file; its name stands in messages.
class FileReader {
 public:
  FileReader(const OpenDirectory& folder, const std::string& name)
      : name_(folder.path_of(name)), file_(folder.file(name)) {}

  std::uint64_t size() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) throw_errno("fstat", name_);
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Gives 0 at the end, otherwise as many bytes as there were, perhaps fewer than asked for.
  std::size_t read(std::span<std::uint8_t> out) const {
    const ssize_t count = retried([&] { return ::read(file_.get(), out.data(), out.size()); });
    if (count < 0) throw_errno("read", name_);
    return static_cast<std::size_t>(count);
  }

  void forget_cached() const { ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED); }

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  FileDescriptor file_;
};

void require_listed(const OpenDirectory& snapshot, const SnapshotManifest& manifest) {
  std::set<std::string> listed{kManifest};
  for (const SnapshotFile& file : manifest.files) listed.insert(file.name);
  for (const std::string& name : snapshot.names()) {
    if (listed.contains(name)) continue;
    throw DataError(concat(
        snapshot.path().string(), ": holds ", printable(name),
        ", which its manifest does not list"));
  }
}

void require_size(const FileReader& reader, const SnapshotFile& file) {
  const std::uint64_t bytes = reader.size();
  if (bytes == file.bytes) return;
  throw DataError(concat(reader.name(), ": has ", bytes, " bytes, the manifest says ", file.bytes));
}

void require_bytes(const OpenDirectory& snapshot, const SnapshotFile& file, ReadFrom from) {
  const FileReader reader(snapshot, file.name);
  if (from == ReadFrom::kDisk) reader.forget_cached();
  Sha256 digest;
  std::vector<std::uint8_t> piece(std::min<std::uint64_t>(kPiece, file.bytes + 1));
  std::uint64_t bytes = 0;
  while (const std::size_t count = reader.read(piece)) {
    bytes += count;
    digest.update(std::span(piece).first(count));
    // A file that grows meanwhile must not keep us for ever.
    if (bytes > file.bytes) break;
  }
  if (bytes == file.bytes && digest.finish() == file.sha256) return;
  throw DataError(concat(
      reader.name(), ": its bytes are not those of which the manifest has the SHA-256: damaged"));
}

}  // namespace

std::string short_text(const OpenDirectory& folder, const std::string& name, std::size_t most) {
  const FileReader reader(folder, name);
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(reader.size(), most) + 1);
  std::size_t filled = 0;
  while (const std::size_t count = reader.read(std::span(bytes).subspan(filled))) filled += count;
  if (filled == bytes.size()) {  // longer, or it grew meanwhile
    throw DataError(concat(reader.name(), ": has more than the ", most, " bytes that it may have"));
  }
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(filled)};
}

SnapshotManifest verify_sizes(const OpenDirectory& snapshot) {
  const SnapshotManifest manifest = parse_manifest(
      short_text(snapshot, kManifest, kMostManifestBytes), snapshot.path_of(kManifest));
  require_listed(snapshot, manifest);
  for (const SnapshotFile& file : manifest.files) {
    require_size(FileReader(snapshot, file.name), file);
  }
  return manifest;
}

SnapshotManifest verify_files(const OpenDirectory& snapshot, ReadFrom from) {
  if (from == ReadFrom::kDisk) FileReader(snapshot, kManifest).forget_cached();
  SnapshotManifest manifest = verify_sizes(snapshot);
  for (const SnapshotFile& file : manifest.files) require_bytes(snapshot, file, from);
  return manifest;
}

SnapshotManifest verify_snapshot(const fs::path& snapshot) {
  // Without a slash behind it or dots in it the last name can be refused if it is a link.
  fs::path path = fs::absolute(snapshot).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  const OpenDirectory folder = OpenDirectory::open(path.parent_path()).child(name);
  SnapshotManifest manifest = verify_files(folder, ReadFrom::kAnywhere);
  const auto step = step_of(name);
  if (!step || *step == manifest.step) return manifest;
  throw DataError(
      concat(path.string(), ": is named after another step than ", manifest.step, ", its own"));
}

}  // namespace lockstep
