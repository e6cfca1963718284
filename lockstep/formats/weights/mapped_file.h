#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lockstep {

/// Shows the bytes of a regular file, read-only, without reading those that nobody looks at.
///
/// The size is fixed when it is opened. If another program shortens the file later, touching what
/// was cut off ends the process with SIGBUS; a file that is replaced by renaming stays whole here.
class MappedFile {
 public:
  /// Fails as open_regular_file() does.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace lockstep
