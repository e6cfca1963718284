#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <sys/stat.h>
#include <type_traits>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// A part of memory whose loss is noticed: see MappedFile.
struct GuardedRange;

/// A regular file mapped into memory, read-only: only what is looked at is read.
///
/// The size is fixed when it is opened. If another program shortens or rewrites the file later,
/// what was lost reads as zeros and checked() throws; a file that is replaced by renaming stays
/// whole here. The first one takes SIGBUS for its own memory and passes all others on to whoever
/// had it.
class MappedFile {
 public:
  /// Fails as open_regular_file() does.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

  /// Throws DataError if the file is no longer what was opened.
  void require_unchanged() const;

  /// Returns what `read` makes of the bytes. If the file changed meanwhile, that is the error, and
  /// nothing that `read` returned or threw.
  template <typename Read>
  auto checked(const Read& read) const {
    try {
      if constexpr (std::is_void_v<decltype(read())>) {
        read();
        require_unchanged();
      } else {
        auto result = read();
        require_unchanged();
        return result;
      }
    } catch (const std::exception&) {
      require_unchanged();
      throw;
    }
  }

 private:
  std::string name_;
  FileDescriptor file_;
  struct stat opened_ {};
  std::span<const std::uint8_t> bytes_;
  GuardedRange* range_ = nullptr;
};

}  // namespace lockstep
