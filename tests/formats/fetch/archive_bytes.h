#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

using Bytes = std::vector<std::uint8_t>;

/// An entry of a tar file, as its header's fields say it.
struct TarEntry {
  std::string name;
  std::string data = {};
  char type = '0';  ///< 0 file, 1 hard link, 2 symbolic link, 3, 4 devices, 5 folder, 6 FIFO
  unsigned mode = 0644;
  std::string link = {};
};

/// Makes one header of 512 bytes (POSIX ustar), its checksum right.
Bytes tar_header(const TarEntry& entry, std::uint64_t size);

/// Makes a tar file, hostile ones too; with its end mark of two blocks of zeros.
Bytes tar_bytes(const std::vector<TarEntry>& entries);

/// Returns the bytes with the checksum of each block of 512 that may be a header set right.
Bytes with_true_tar_checksums(Bytes bytes);

/// Makes a GNU sparse file's header: `size` bytes, of which one block at the start is stored.
Bytes sparse_tar_bytes(const std::string& name, std::uint64_t size);

}  // namespace lockstep::testing
