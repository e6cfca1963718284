#include "lockstep/snapshot/manifest.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

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
    refuse(file, "version ", version, " was written by a newer Lockstep; this one reads version ",
        kVersion, ": use the newer one");
  }
  if (version != kVersion) refuse(file, "there is no version ", version);
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

SnapshotFile file_of(const JsonFields& entry, const std::string& file) {
  SnapshotFile found{.name = entry.text("name"),
      .bytes = static_cast<std::uint64_t>(entry.count("bytes")),
      .sha256 = entry.text("sha256")};
  require_only(entry, 3, file);
  if (!is_file_name(found.name)) {
    refuse(file, "the name ", printable(found.name), " is not one that a snapshot's file may have");
  }
  if (!is_sha256(found.sha256)) entry.refuse("sha256", "be 64 small hexadecimal letters");
  return found;
}

std::vector<SnapshotFile> files_of(const JsonFields& manifest, const std::string& file) {
  std::vector<SnapshotFile> files;
  std::unordered_set<std::string> names;
  for (const JsonFields& entry : manifest.objects("files")) {
    files.push_back(file_of(entry, file));
    const std::string& name = files.back().name;
    if (!names.insert(name).second) refuse(file, "the file ", name, " is listed twice");
  }
  if (files.empty()) manifest.refuse("files", "list at least one file");
  return files;
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

std::string to_json(const SnapshotManifest& manifest) {
  check_writable(manifest);
  std::string front = concat(R"({"v":)", kVersion, R"(,"step":)", manifest.step, R"(,"libtorch":)",
      json(manifest.libtorch).dump(), R"(,"lockstep":)", json(manifest.lockstep).dump(),
      R"(,"files":[)");
  const char* separator = "";
  for (const SnapshotFile& file : manifest.files) {
    front += concat(separator, R"({"name":")", file.name, R"(","bytes":)", file.bytes,
        R"(,"sha256":")", file.sha256, "\"}");
    separator = ",";
  }
  front += R"(],"complete":true)";
  const std::string text = front + tail_of(front);
  check(text.size() <= kMostManifestBytes, "a snapshot's manifest of ", text.size(),
      " bytes; at most ", kMostManifestBytes, " are allowed");
  return text;
}

SnapshotManifest parse_manifest(std::string_view text, const std::string& file) {
  const json object = parse_strict_json(text, file, {.bytes = kMostManifestBytes, .depth = 4});
  const JsonFields fields(object, file);
  require_version(fields, file);
  require_unchanged(text, file);
  if (!fields.flag("complete")) refuse(file, "complete is not true: it was never finished");
  SnapshotManifest manifest{.step = fields.count("step"),
      .libtorch = fields.text("libtorch"),
      .lockstep = fields.text("lockstep"),
      .files = files_of(fields, file)};
  fields.text("sha256");
  require_only(fields, 7, file);
  return manifest;
}

}  // namespace lockstep
