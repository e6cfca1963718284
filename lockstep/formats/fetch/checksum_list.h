#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// The list of a folder's files and their SHA-256, as coreutils' `sha256sum --check` reads it.
inline constexpr const char* kChecksumList = "SHA256SUMS";

/// Writes the list of all files below a folder into it.
void write_checksum_list(const std::filesystem::path& folder);

/// Compares a folder with its list: nothing if they agree, else what does not, in words.
///
/// Files that are not in the list are ignored.
std::optional<std::string> checksum_list_fault(const std::filesystem::path& folder);

}  // namespace lockstep
