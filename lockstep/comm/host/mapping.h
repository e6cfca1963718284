#pragma once

#include <cstddef>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::host {

/// Owns pages that are mapped into this process, zero at first.
class Mapping {
 public:
  Mapping() = default;
  /// Maps memory of this process alone.
  static Mapping anonymous(std::size_t bytes);
  /// Maps the file's memory, shared with all who map it.
  static Mapping shared(const FileDescriptor& file, std::size_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Mapping(int flags, int descriptor, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Makes memory without a name in any file system: it vanishes with the last process that holds it,
/// even after SIGKILL.
FileDescriptor make_memory_file(std::size_t bytes);

/// Opens memory that another process of the same user made: its process id and descriptor there.
FileDescriptor open_memory_file(int process, int descriptor);

}  // namespace lockstep::host
