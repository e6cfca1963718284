#pragma once

#include <filesystem>
#include <string>

#include "lockstep/formats/open_directory.h"
#include "lockstep/snapshot/manifest.h"

namespace lockstep {

/// Reads a snapshot's manifest and every file, and compares sizes and SHA-256.
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
