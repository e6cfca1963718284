#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// An archive's description of one of its entries.
struct ArchiveEntry {
  std::string name;
  bool is_folder = false;         ///< otherwise a file
  bool executable = false;        ///< by its owner
  const char* refusal = nullptr;  ///< why it must not be unpacked, such as `it is a device`
};

/// A tar file, plain or gzip, or a zip file; its first bytes decide which.
///
/// Wrong checksums, a cut file and bytes after the end are a DataError. So is a stream that grows
/// to more than `ratio` times the bytes read for it (the first MiB is free): memory and time stay
/// in proportion to the file.
class ArchiveReader {
 public:
  ArchiveReader(const std::filesystem::path& path, std::uint64_t ratio);
  ~ArchiveReader();

  /// Goes to the next entry; none at the end.
  std::optional<ArchiveEntry> next();

  /// Returns the next bytes of the entry, valid until the next call; none at its end.
  std::span<const std::uint8_t> read();

 private:
  struct Stream;

  [[noreturn]] void fail();

  std::string name_;
  std::uint64_t ratio_;
  std::uint64_t zip_bytes_ = 0;  ///< 0 for tar
  std::uint64_t given_ = 0;
  std::uint64_t offset_ = 0;
  std::unique_ptr<Stream> stream_;
};

}  // namespace lockstep
