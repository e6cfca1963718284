#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// Writes a file that is either complete or not there: aside, synced to the disk, then renamed.
///
/// Without commit() nothing is left. What the operating system refuses is a std::system_error.
///
///     AtomicFile file(path);
///     file.write(bytes);
///     file.commit();
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::uint8_t> bytes);
  void write(const std::string& bytes);

  /// Puts the file into its place, also if one is there already. Write nothing afterwards.
  void commit();

 private:
  void open_aside();

  std::filesystem::path path_;
  std::filesystem::path aside_;
  FileDescriptor file_;
};

}  // namespace lockstep
