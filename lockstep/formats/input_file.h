#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_stream.h"

namespace lockstep {

/// Opens a regular file to read.
///
/// A path that is missing, a loop of links, a directory, a FIFO or a device is a DataError and
/// never blocks; what the operating system refuses for another reason (permission, too many files)
/// is a std::system_error.
FileDescriptor open_regular_file(const std::filesystem::path& path);

/// A regular file that is read from its start.
class InputFile final : public ByteSource {
 public:
  /// Fails as open_regular_file() does.
  explicit InputFile(const std::filesystem::path& path);

  /// Takes a file that is open already; `name` stands in messages.
  InputFile(FileDescriptor file, std::string name)
      : name_(std::move(name)), file_(std::move(file)) {}

  std::size_t read(std::span<std::uint8_t> out) override;
  const std::string& name() const override { return name_; }
  int descriptor() const { return file_.get(); }

 private:
  std::string name_;
  FileDescriptor file_;
};

}  // namespace lockstep
