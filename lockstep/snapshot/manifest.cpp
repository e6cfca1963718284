#include "lockstep/snapshot/manifest.h"

#include <algorithm>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/stat.h>
#include <unordered_set>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/tensor_group.h"

namespace lockstep {

namespace {

constexpr int kWithoutParts = 1;
constexpr int kVersion = 2;

std::string sha256_of_text(std::string_view text) {
  Sha256 digest;
  digest.update({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return digest.finish();
}

/// Returns the end of a manifest, which guards what stands before it.
std::string tail_of(std::string_view front) {
  return concat(R"(,"sha256":")", sha256_of_text(front), "\"}\n");
}

template <typename... Parts>
[[noreturn]] void refuse(const std::string& file, const Parts&... reason) {
  throw DataError(concat(file, ": ", reason...));
}

/// Comes first: what a newer version means by the rest is not known here.
void require_version(const JsonFields& manifest, const std::string& file) {
  const std::int64_t version = manifest.count("v");
  if (version > kVersion) {
    refuse(file, "version ", version,
        " was written by a newer Lockstep; this one reads versions up to ", kVersion,
        ": use the newer one");
  }
  if (version < kWithoutParts) refuse(file, "there is no version ", version);
}

/// The functions that read the fields refuse those that are missing.
void require_only(const JsonFields& fields, std::size_t keys, const std::string& file) {
  if (fields.items().size() != keys) refuse(file, "the manifest has a key too many or too few");
}

void require_unchanged(std::string_view text, const std::string& file) {
  const std::size_t tail = tail_of("").size();
  const bool is_long = text.size() > tail;
  if (!is_long || text.substr(text.size() - tail) != tail_of(text.substr(0, text.size() - tail))) {
    refuse(file, "its own SHA-256 at the end does not fit: it was changed or damaged");
  }
}

void check_files(const JsonFields& manifest, const std::string& file) {
  std::unordered_set<std::string> names;
  for (const JsonFields& entry : manifest.objects("files")) {
    require_only(entry, 3, file);
    const std::string name = entry.text("name");
    if (!is_file_name(name))
      refuse(file, "the name ", printable(name), " is not one that a snapshot's file may have");
    if (!is_sha256(entry.text("sha256"))) entry.refuse("sha256", "be 64 small hexadecimal letters");
    if (!names.insert(name).second) refuse(file, "the file ", name, " is listed twice");
  }
  if (names.empty()) manifest.refuse("files", "list at least one file");
}

void check_writable(const SnapshotManifest& manifest) {
  check(manifest.step >= 0, "a snapshot's step cannot be negative: ", manifest.step);
  check(is_utf8(manifest.libtorch) && is_utf8(manifest.lockstep),
      "a snapshot's versions must be UTF-8");
  check(!manifest.files.empty(), "a snapshot needs at least one file");
  std::unordered_set<std::string> names;
  for (const SnapshotFile& file : manifest.files) {
    const std::string name = printable(file.name);
    check(is_file_name(file.name), "a file of a snapshot cannot have the name ", name);
    check(names.insert(file.name).second, "two files of a snapshot have the name ", name);
    check(is_sha256(file.sha256), "the SHA-256 of the snapshot's file ", name, " is none");
  }
}

}  // namespace

template <typename Object>
void list_fields(Object& object, SnapshotManifest& manifest) {
  object("step", manifest.step);
  object("libtorch", manifest.libtorch);
  object("lockstep", manifest.lockstep);
  object("files", manifest.files);
}

std::string to_json(const SnapshotManifest& manifest) {
  check_writable(manifest);
  JsonWriter::Json object = {{"v", manifest.has_parts ? kVersion : kWithoutParts}};
  object.update(JsonWriter::json_of(manifest));
  object["complete"] = true;
  std::string text = object.dump();
  text.pop_back();  // the brace comes after the SHA-256
  text += tail_of(text);
  check(text.size() <= kMostManifestBytes, "a snapshot's manifest of ", text.size(),
      " bytes; at most ", kMostManifestBytes, " are allowed");
  return text;
}

SnapshotManifest parse_manifest(std::string_view text, const std::string& file) {
  const nlohmann::json object =
      parse_strict_json(text, file, {.bytes = kMostManifestBytes, .depth = 4});
  const JsonFields fields(object, file);
  require_version(fields, file);
  require_unchanged(text, file);
  if (!fields.flag("complete")) refuse(file, "complete is not true: it was never finished");
  auto manifest = JsonReader::read<SnapshotManifest>(fields);
  manifest.has_parts = fields.count("v") > kWithoutParts;
  check_files(fields, file);
  require_only(fields, 7, file);
  return manifest;
}

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
  check_parts(manifest, snapshot.path());
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
