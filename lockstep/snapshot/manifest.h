#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// The facts about one file of a snapshot.
struct SnapshotFile {
  std::string name;  ///< without a folder
  std::uint64_t bytes = 0;
  std::string sha256;  ///< 64 small hexadecimal letters

  bool operator==(const SnapshotFile&) const = default;
};

/// Lists its fields for JSON, as JsonWriter has it.
template <typename Object>
void list_fields(Object& object, SnapshotFile& file) {
  object("name", file.name);
  object("bytes", file.bytes);
  object("sha256", file.sha256);
}

/// The contents of a snapshot: manifest.json, the last file that is written.
struct SnapshotManifest {
  std::int64_t step = 0;
  std::string libtorch;  ///< the versions that wrote it, such as `2.15.0`
  std::string lockstep;
  bool has_parts = false;  ///< some tensors lie in parts; older versions of Lockstep refuse that
  std::vector<SnapshotFile> files;

  bool operator==(const SnapshotManifest&) const = default;
};

/// The most bytes that a manifest may have.
inline constexpr std::size_t kMostManifestBytes = std::size_t{1} << 20;

/// Writes a manifest as JSON. Its last key is the SHA-256 of all that stands before it, so that it
/// guards itself, too. No file at all, a name that no file may have (is_file_name()) or that comes
/// twice, a hash that is none, or more than kMostManifestBytes is an InvalidArgument.
std::string to_json(const SnapshotManifest& manifest);

/// Reads a manifest. One that breaks any rule, or that a newer Lockstep wrote, is a DataError that
/// begins with `file`.
SnapshotManifest parse_manifest(std::string_view json, const std::string& file);

/// Reads a snapshot's manifest and every file, and compares sizes and SHA-256; then check_parts().
///
/// A file that is missing, that is not listed, that is another size or has other bytes, a link,
/// another user's file or folder, or a manifest that breaks a rule is a DataError that names the
/// file and the reason; so is a snapshot whose folder is named after another step.
SnapshotManifest verify_snapshot(const std::filesystem::path& snapshot);

/// Where the bytes come from that are compared.
enum class ReadFrom {
  kAnywhere,
  kDisk,  ///< what the kernel still has in memory is dropped before, where it can be
};

/// Does the same with an open folder, whose name is not looked at.
SnapshotManifest verify_files(const OpenDirectory& snapshot, ReadFrom from);

/// Compares names and sizes only: what a crash tears, but not what flips a bit.
SnapshotManifest verify_sizes(const OpenDirectory& snapshot);

/// Reads a text file of at most `most` bytes; a longer one is a DataError.
std::string short_text(const OpenDirectory& folder, const std::string& name, std::size_t most);

}  // namespace lockstep
