#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/open_directory.h"

namespace lockstep {

/// The file `.NAME.part` in which a download grows, even over several runs.
///
/// It is a regular file of this user alone (0600, one name, no link), and locked: a second download
/// of the same file at the same time is an InvalidArgument. Failures of the disk are
/// std::system_error. What is not finished stays, for the next run to go on.
class PartialFile {
 public:
  PartialFile(const std::filesystem::path& directory, const std::string& name);

  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Adds bytes at the end.
  void append(std::span<const std::uint8_t> bytes);

  /// Forgets all bytes.
  void restart();

  /// Reads the whole file again and gives its SHA-256.
  std::string sha256() const;

  /// Makes the file durable and gives it its name; what has that name already stays, and is a
  /// std::system_error.
  void finish();

  /// Removes the file.
  void remove();

 private:
  void rename() const;

  OpenDirectory directory_;
  std::string name_;
  std::string part_name_;
  std::string path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
