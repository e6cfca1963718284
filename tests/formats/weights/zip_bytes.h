#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A file of an archive to be made; what is set says something else than the truth.
struct ZipPart {
  std::string name = {};
  std::string content = {};
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::optional<std::uint32_t> checksum = {};    ///< in both headers
  std::optional<std::uint64_t> size = {};        ///< in the directory, both sizes
  std::optional<std::uint32_t> header = {};      ///< in the directory: where its own header begins
  std::optional<std::string> local_name = {};    ///< in its own header
  std::optional<std::uint32_t> local_size = {};  ///< in its own header, both sizes
  std::optional<std::uint64_t> unpacked = {};    ///< in both headers: the size without compression
  std::uint32_t mode = 0;                        ///< Unix's, with the file's type; 0 without Unix
  std::string descriptor = {};                   ///< what lies behind its bytes
  std::string extra = {};                        ///< in the directory
  std::string local_extra = {};                  ///< in its own header
};

/// Makes an archive with 32-bit numbers, or with the 64-bit end that PyTorch writes.
std::vector<std::uint8_t> zip_bytes(const std::vector<ZipPart>& parts, bool is_wide = false);

/// Returns the checksum of a text.
std::uint32_t checksum_of(const std::string& text);

/// Returns numbers of so many bytes, one behind the other.
std::string numbers(int bytes, const std::vector<std::uint64_t>& values);

}  // namespace lockstep::testing
