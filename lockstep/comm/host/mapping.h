#pragma once

#include <cstddef>
#include <string>

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

/// Memory without a name in any file system: it vanishes with the last process that holds it, even
/// after SIGKILL.
struct MemoryFile {
  FileDescriptor descriptor;
  std::string ticket;  ///< what another process opens it by: process, descriptor, random label
};

MemoryFile make_memory_file(std::size_t bytes);

/// Opens memory that another process of this user made. The ticket came over a store that anybody
/// may have written to, or from another host: throws CommError unless it leads to memory of this
/// user, with this label, of at least this size.
FileDescriptor open_memory_file(const std::string& ticket, std::size_t bytes);

}  // namespace lockstep::host
