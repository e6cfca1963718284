#include "lockstep/formats/snapshot/manifest.h"

#include <initializer_list>
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/utf8.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

std::string sha256_of_text(std::string_view text) {
  Sha256 digest;
  digest.update({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return digest.finish();
}

/// Gives the end of a manifest, which guards what stands before it.
std::string tail_of(std::string_view front) {
  return concat(R"(,"sha256":")", sha256_of_text(front), "\"}\n");
}

/// Reads what stands in a manifest; says what is wrong with it.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& file) : file_(file) {}

  SnapshotManifest read(std::string_view text) const {
    const json object = parse_strict_json(text, file_, {.bytes = kMostManifestBytes, .depth = 4});
    require_version(object);
    require_keys(
        object, {"v", "step", "libtorch", "lockstep", "files", "complete", "sha256"},
        "the manifest");
    require_unchanged(text);
    if (object["complete"] != true) refuse("complete is not true: it was never finished");
    return {
        .step = static_cast<std::int64_t>(number(object["step"], "step")),
        .libtorch = this->text(object["libtorch"], "libtorch"),
        .lockstep = this->text(object["lockstep"], "lockstep"),
        .files = files(object["files"])};
  }

 private:
  /// First of all: what a newer version means by the rest is not known here.
  void require_version(const json& object) const {
    if (!object.is_object() || !object.contains("v")) refuse("the key \"v\" is missing");
    const std::uint64_t version = number(object["v"], "v");
    if (version > kVersion) {
      refuse(
          "version ", version, " was written by a newer Lockstep; this one reads version ",
          kVersion, ": use the newer one");
    }
    if (version != kVersion) refuse("there is no version ", version);
  }

  void require_keys(
      const json& object, std::initializer_list<const char*> keys, const char* what) const {
    if (!object.is_object()) refuse(what, " is no object");
    for (const char* key : keys) {
      if (!object.contains(key)) refuse("the key \"", key, "\" of ", what, " is missing");
    }
    if (object.size() != keys.size()) refuse(what, " has a key too many");
  }

  void require_unchanged(std::string_view text) const {
    const std::size_t tail = tail_of("").size();
    const bool is_long = text.size() > tail;
    if (!is_long ||
        text.substr(text.size() - tail) != tail_of(text.substr(0, text.size() - tail))) {
      refuse("its own SHA-256 at the end does not fit: it was changed or damaged");
    }
  }

  std::vector<SnapshotFile> files(const json& list) const {
    if (!list.is_array() || list.empty()) refuse("files must be a list with at least one file");
    std::vector<SnapshotFile> files;
    std::unordered_set<std::string> names;
    for (const json& entry : list) {
      files.push_back(file_of(entry));
      const std::string& name = files.back().name;
      if (!names.insert(name).second) refuse("the file ", name, " is listed twice");
    }
    return files;
  }

  SnapshotFile file_of(const json& entry) const {
    require_keys(entry, {"name", "bytes", "sha256"}, "a file");
    SnapshotFile file{
        .name = text(entry["name"], "name"),
        .bytes = number(entry["bytes"], "bytes"),
        .sha256 = text(entry["sha256"], "sha256")};
    if (!is_file_name(file.name)) {
      refuse("the name ", printable(file.name), " is none that a file of a snapshot may have");
    }
    if (!is_sha256(file.sha256)) refuse("the sha256 of ", file.name, " is no SHA-256");
    return file;
  }

  std::uint64_t number(const json& value, const char* key) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
      refuse(key, " must be a whole number from 0 to ", kMost);
    }
    return value.get<std::uint64_t>();
  }

  std::string text(const json& value, const char* key) const {
    if (!value.is_string()) refuse(key, " must be a text");
    return value.get<std::string>();
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... reason) const {
    throw DataError(concat(file_, ": ", reason...));
  }

  const std::string& file_;
};

void check_writable(const SnapshotManifest& manifest) {
  check(manifest.step >= 0, "a snapshot's step cannot be negative: ", manifest.step);
  check(
      is_utf8(manifest.libtorch) && is_utf8(manifest.lockstep),
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
  std::string front = concat(
      R"({"v":)", kVersion, R"(,"step":)", manifest.step, R"(,"libtorch":)",
      json(manifest.libtorch).dump(), R"(,"lockstep":)", json(manifest.lockstep).dump(),
      R"(,"files":[)");
  const char* separator = "";
  for (const SnapshotFile& file : manifest.files) {
    front += concat(
        separator, R"({"name":")", file.name, R"(","bytes":)", file.bytes, R"(,"sha256":")",
        file.sha256, "\"}");
    separator = ",";
  }
  front += R"(],"complete":true)";
  const std::string text = front + tail_of(front);
  check(
      text.size() <= kMostManifestBytes, "a snapshot's manifest of ", text.size(),
      " bytes; at most ", kMostManifestBytes, " are allowed");
  return text;
}

SnapshotManifest parse_manifest(std::string_view text, const std::string& file) {
  return ManifestReader(file).read(text);
}

}  // namespace lockstep
