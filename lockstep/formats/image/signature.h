#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Says whether bytes begin with those of a text, by which a format or a segment is known.
inline bool starts_with(std::span<const std::uint8_t> bytes, std::string_view signature) {
  if (bytes.size() < signature.size()) return false;
  return std::equal(
      signature.begin(), signature.end(), bytes.begin(),
      [](char expected, std::uint8_t byte) { return static_cast<std::uint8_t>(expected) == byte; });
}

}  // namespace lockstep
