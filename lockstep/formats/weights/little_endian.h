#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Gives the number whose bytes these are, lowest first; at most eight.
inline std::uint64_t little_endian(std::span<const std::uint8_t> bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | bytes[i];
  return number;
}

/// Puts the lowest `size` bytes of a number behind a text or a vector of bytes.
template <typename Bytes>
void append_little_endian(Bytes& bytes, std::uint64_t number, int size) {
  for (int i = 0; i < size; ++i) {
    bytes.push_back(static_cast<typename Bytes::value_type>(number >> (8 * i)));
  }
}

}  // namespace lockstep
