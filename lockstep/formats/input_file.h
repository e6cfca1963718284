#pragma once

#include <filesystem>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_source.h"

namespace lockstep {

/// Opens a regular file to read.
///
/// A path that is missing, a loop of links, a directory, a FIFO or a device is a DataError and
/// never blocks; what the operating system refuses for another reason (permission, too many files)
/// is a std::system_error.
FileDescriptor open_regular_file(const std::filesystem::path& path);

/// Gives the bytes of a regular file, opened by open_regular_file().
class InputFile final : public ByteSource {
 public:
  explicit InputFile(const std::filesystem::path& path);

  std::size_t read(std::span<std::uint8_t> out) override;
  const std::string& name() const override { return name_; }

 private:
  std::string name_;
  FileDescriptor file_;
};

}  // namespace lockstep
