#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/weights/little_endian.h"
#include "lockstep/formats/weights/refuse.h"

namespace lockstep::zip {

/// Reads the fields of a zip record one after another; what would lie behind the end is a
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
      refuse(file_, offset_, "the file ends within a record of its zip archive");
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

}  // namespace lockstep::zip
