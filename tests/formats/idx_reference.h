#pragma once

#include <optional>

#include "lockstep/formats/idx.h"

namespace lockstep::testing {

/// Reads plain IDX bytes by the letter of the format, the slow way; nothing if they are not exactly
/// one array.
inline std::optional<IdxArray> reference_idx(std::span<const std::uint8_t> bytes, int dimensions,
    std::uint64_t maximum_bytes = kMaximumIdxBytes) {
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (bytes.size() < header) return std::nullopt;
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != dimensions)
    return std::nullopt;
  IdxArray array;
  long double product = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint32_t count = static_cast<std::uint32_t>(bytes[at]) * 16777216U +
                                bytes[at + 1] * 65536U + bytes[at + 2] * 256U + bytes[at + 3];
    array.shape.push_back(count);
    product *= count;
  }
  const bool is_exact = product == static_cast<long double>(bytes.size() - header);
  if (product == 0 || product > static_cast<long double>(maximum_bytes) || !is_exact)
    return std::nullopt;
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return array;
}

}  // namespace lockstep::testing
