#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// Writes a new file; what is there already, be it a link, is never written over.
///
/// Every failure (a path that is taken, a full disk) is a std::system_error that names the file.
class OutputFile {
 public:
  /// Makes the file; nobody else may write it (0644, less what the umask takes).
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::span<const std::uint8_t> bytes);
  void write(const std::string& text);

  /// Closes the file: the last place where a failure can still be told.
  void close();

 private:
  std::string name_;
  FileDescriptor file_;
};

}  // namespace lockstep
