#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/formats/byte_fields.h"

namespace lockstep::testing {

/// Makes a safetensors file of a header and what follows, whether or not they fit.
inline std::vector<std::uint8_t> safetensors_bytes(
    const std::string& header, std::size_t data_bytes = 0) {
  std::vector<std::uint8_t> bytes;
  append_little_endian(bytes, header.size(), 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::uint8_t>(i + 1));
  return bytes;
}

}  // namespace lockstep::testing
