#include "lockstep/snapshot/snapshot_check.h"

#include <algorithm>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;

InputFile opened_file(const OpenDirectory& folder, const std::string& name) {
  return {folder.file(name), folder.path_of(name)};
}

std::uint64_t size_of(const InputFile& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) throw_errno("fstat", file.name());
  return static_cast<std::uint64_t>(status.st_size);
}

void forget_cached(const InputFile& file) {
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

void require_listed(const OpenDirectory& snapshot, const SnapshotManifest& manifest) {
  std::set<std::string> listed{kManifest};
  for (const SnapshotFile& file : manifest.files) listed.insert(file.name);
  for (const std::string& name : snapshot.names()) {
    if (listed.contains(name)) continue;
    throw DataError(concat(snapshot.path().string(), ": holds ", printable(name),
        ", which its manifest does not list"));
  }
}

void require_size(const InputFile& reader, const SnapshotFile& file) {
  const std::uint64_t bytes = size_of(reader);
  if (bytes == file.bytes) return;
  throw DataError(concat(reader.name(), ": has ", bytes, " bytes, the manifest says ", file.bytes));
}

void require_bytes(const OpenDirectory& snapshot, const SnapshotFile& file, ReadFrom from) {
  InputFile reader = opened_file(snapshot, file.name);
  if (from == ReadFrom::kDisk) forget_cached(reader);
  Sha256 digest;
  std::vector<std::uint8_t> piece(std::min<std::uint64_t>(kReadAtOnce, file.bytes + 1));
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
  InputFile reader = opened_file(folder, name);
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(size_of(reader), most) + 1);
  const std::size_t filled = reader.read(bytes);
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
    require_size(opened_file(snapshot, file.name), file);
  }
  return manifest;
}

SnapshotManifest verify_files(const OpenDirectory& snapshot, ReadFrom from) {
  if (from == ReadFrom::kDisk) forget_cached(opened_file(snapshot, kManifest));
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
