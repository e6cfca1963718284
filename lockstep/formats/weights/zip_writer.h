#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/weights/atomic_file.h"

namespace lockstep {

/// Writes a zip archive that stores its files as they are, as PyTorch does: each begins at a
/// multiple of 64 bytes, so that it can be mapped.
class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  void add(const std::string& name, std::span<const std::uint8_t> bytes);
  void add(const std::string& name, const std::string& text);

  /// Writes the directory; add nothing afterwards.
  void finish();

 private:
  void write(const std::string& record);

  AtomicFile& file_;
  std::string directory_;
  std::uint64_t entries_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace lockstep
