#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.h"

// Reads the fields of binary files, and refuses files with wrong ones.
namespace lockstep {

/// Returns the number whose bytes these are, lowest first; at most eight.
inline std::uint64_t little_endian(std::span<const std::uint8_t> bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | bytes[i];
  return number;
}

/// Returns the number whose bytes these are, highest first; at most eight.
inline std::uint64_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint64_t number = 0;
  for (const std::uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

/// Appends the lowest `size` bytes of a number to a text or a vector of bytes.
template <typename Bytes>
void append_little_endian(Bytes& bytes, std::uint64_t number, int size) {
  for (int i = 0; i < size; ++i) {
    bytes.push_back(static_cast<typename Bytes::value_type>(number >> (8 * i)));
  }
}

/// Returns the bytes as text.
inline std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns whether bytes begin with those of a text, by which a format or a segment is known.
inline bool starts_with(std::span<const std::uint8_t> bytes, std::string_view signature) {
  return text_of(bytes).starts_with(signature);
}

/// Throws the DataError `FILE: offset N: REASON`.
template <typename... Parts>
[[noreturn]] void refuse_at(const std::string& file, std::uint64_t offset, const Parts&... reason) {
  throw DataError(concat(file, ": offset ", offset, ": ", reason...));
}

}  // namespace lockstep
