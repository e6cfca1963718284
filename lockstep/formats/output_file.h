#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_sink.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// Writes all of the bytes to an open file; `name` stands in the std::system_error of a failure.
void write_all(int descriptor, std::span<const std::uint8_t> bytes, const std::string& name);

/// Writes a new file; what is there already, be it a link, is never written over.
///
/// Every failure (a path that is taken, a full disk) is a std::system_error that names the file.
class OutputFile final : public ByteSink {
 public:
  /// Makes the file; nobody else may write it (0644, less what the umask takes).
  explicit OutputFile(const std::filesystem::path& path);

  /// Does the same in an open folder; `name` is one name, without a folder.
  OutputFile(const OpenDirectory& folder, const std::string& name);

  /// Waits until the disk has what was written. When it throws, the file must be written anew,
  /// under another name: a second call may succeed although the bytes are lost.
  void sync();

  /// Closes the file: the last place where a failure can still be told.
  void close();

 private:
  void put(std::span<const std::uint8_t> bytes) override;

  std::string name_;
  FileDescriptor file_;
};

}  // namespace lockstep
