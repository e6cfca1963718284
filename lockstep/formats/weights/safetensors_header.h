#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/weights/element_type.h"

namespace lockstep {

/// One tensor in the header of a safetensors file; bytes count from the header's end.
struct SafetensorsTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The header of a safetensors file, in its order.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads the JSON of a header. What is no JSON, deeper or other than the format says, or has a key
/// twice is a DataError that begins with `file`; the places of the tensors are not yet checked.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& file);

}  // namespace lockstep
