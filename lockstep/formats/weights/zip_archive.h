#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/byte_stream.h"

namespace lockstep {

/// One file of a zip archive.
struct ZipEntry {
  std::string name;
  std::span<const std::uint8_t> bytes;
  std::uint64_t offset = 0;  ///< of its bytes in the archive
  std::uint16_t method = 0;  ///< by which they are compressed; 0 for none
};

/// Lists the files of a zip archive as they are stored, as PyTorch writes it; also with 64-bit
/// sizes and data descriptors. What is compressed is not unpacked, nor its checksum compared.
///
/// Both headers of each file must say the same, its checksum must fit, and header, bytes and
/// descriptor of all must lie one behind the other, from the archive's start to its directory. What
/// is encrypted, overlapping, named twice, or named so that it would leave a folder
/// (`../`) is a DataError with file, offset and reason.
std::vector<ZipEntry> read_zip(std::span<const std::uint8_t> archive, const std::string& file);

/// A zip archive that stores its files as they are, as PyTorch does: each begins at a multiple of
/// 64 bytes, so that it can be mapped.
class ZipWriter {
 public:
  explicit ZipWriter(ByteSink& sink) : sink_(sink) {}

  void add(const std::string& name, std::span<const std::uint8_t> bytes);
  void add(const std::string& name, const std::string& text);

  /// Writes the directory; add nothing afterwards.
  void finish();

 private:
  void write(const std::string& record);

  ByteSink& sink_;
  std::string directory_;
  std::uint64_t entries_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace lockstep
