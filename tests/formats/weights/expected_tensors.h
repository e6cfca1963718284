#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/formats/idx_bytes.h"

#include "lockstep/formats/weights/element_type.h"

namespace lockstep::testing {

/// A tensor as Python has written it, see tests/conformance/weights.py.
struct ExpectedTensor {
  std::string name;
  ElementType type;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// Returns the path of a file that Python has written.
std::filesystem::path python_file(const std::string& name);

/// Returns what is in such a file, in its order.
std::vector<ExpectedTensor> expected_tensors(const std::string& file);

}  // namespace lockstep::testing
