#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::zip {

/// Holds what the directory at an archive's end says of one file.
struct DirectoryEntry {
  std::string name;
  std::uint16_t flags = 0;
  std::uint32_t checksum = 0;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  ///< offset of its own header
};

/// Holds the directory of an archive.
struct Directory {
  std::vector<DirectoryEntry> entries;
  std::uint64_t offset = 0;  ///< where it begins, and the files end
};

/// Reads the directory at an archive's end. Names, ways of storing and sizes are checked; whether
/// the files are where it says is not.
Directory read_directory(std::span<const std::uint8_t> archive, const std::string& file);

}  // namespace lockstep::zip
