#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The facts about one file of a snapshot.
struct SnapshotFile {
  std::string name;  ///< without a folder
  std::uint64_t bytes = 0;
  std::string sha256;  ///< 64 small hexadecimal letters

  bool operator==(const SnapshotFile&) const = default;
};

/// The contents of a snapshot: manifest.json, the last file that is written.
struct SnapshotManifest {
  std::int64_t step = 0;
  std::string libtorch;  ///< the versions that wrote it, such as `2.15.0`
  std::string lockstep;
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

}  // namespace lockstep
