#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/byte_fields.h"

// The records of a zip archive (PKWARE's APPNOTE.TXT 6.3): what each begins with, and its bytes
// without names and extra fields. All numbers are little-endian.

namespace lockstep::zip {

inline constexpr std::uint32_t kLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr std::uint32_t kCentralSignature = 0x02014b50;
inline constexpr std::uint32_t kEndSignature = 0x06054b50;
inline constexpr std::uint32_t kEnd64Signature = 0x06064b50;
inline constexpr std::uint32_t kLocatorSignature = 0x07064b50;

inline constexpr std::size_t kLocalBytes = 30;
inline constexpr std::size_t kCentralBytes = 46;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kEnd64Bytes = 56;
inline constexpr std::size_t kLocatorBytes = 20;

inline constexpr std::uint16_t kHasDescriptor = 1 << 3;
inline constexpr std::uint16_t kIsUtf8 = 1 << 11;
inline constexpr std::uint16_t kZip64Field = 0x0001;

/// Stands in a narrow field for a number that stands in a wide one elsewhere.
inline constexpr std::uint32_t kElsewhere32 = 0xffffffff;
inline constexpr std::uint16_t kElsewhere16 = 0xffff;

/// The fields of a zip record, read one after another; what would lie behind the end is a
/// DataError.
class Fields {
 public:
  /// `offset` is where the record begins.
  Fields(std::span<const std::uint8_t> archive, std::uint64_t offset, const std::string& file)
      : archive_(archive), offset_(offset), file_(file) {}

  std::uint64_t number(std::size_t bytes) { return little_endian(take(bytes)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }

  std::string text(std::size_t bytes) {
    const auto taken = take(bytes);
    return {taken.begin(), taken.end()};
  }

  std::span<const std::uint8_t> take(std::uint64_t bytes) {
    if (offset_ > archive_.size() || bytes > archive_.size() - offset_) {
      refuse_at(file_, offset_, "the file ends within a record of its zip archive");
    }
    const auto taken = archive_.subspan(offset_, bytes);
    offset_ += bytes;
    return taken;
  }

  std::uint64_t offset() const { return offset_; }

 private:
  std::span<const std::uint8_t> archive_;
  std::uint64_t offset_;
  const std::string& file_;
};

/// One file in the directory at an archive's end.
struct DirectoryEntry {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;  ///< of compression: 0 for none
  std::uint32_t checksum = 0;
  std::uint64_t stored = 0;  ///< bytes that lie in the archive
  std::uint64_t size = 0;    ///< bytes of the file
  std::uint64_t header = 0;  ///< offset of its own header
};

/// The directory of an archive.
struct Directory {
  std::vector<DirectoryEntry> entries;
  std::uint64_t offset = 0;  ///< where it begins, and the files end
};

/// Reads the directory at an archive's end. Names, ways of storing and sizes are checked; whether
/// the files are where it says is not.
Directory read_directory(std::span<const std::uint8_t> archive, const std::string& file);

}  // namespace lockstep::zip
