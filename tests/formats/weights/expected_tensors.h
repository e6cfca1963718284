#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/formats/idx_bytes.h"

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep::testing {

/// A tensor as Python has written it, see tests/conformance/weights.py.
struct ExpectedTensor {
  std::string name;
  ElementType type;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

inline std::vector<std::int64_t> shape_of(const std::string& text) {
  std::vector<std::int64_t> shape;
  std::istringstream stream(text == "-" ? "" : text);
  for (std::string size; std::getline(stream, size, 'x');) shape.push_back(std::stoll(size));
  return shape;
}

inline std::vector<std::uint8_t> bytes_of_digits(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; text != "-" && i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// Returns the path of a file that Python has written.
inline std::filesystem::path python_file(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_WEIGHTS_DATA) / name;
}

/// Returns what is in such a file, in its order.
inline std::vector<ExpectedTensor> expected_tensors(const std::string& file) {
  std::vector<ExpectedTensor> tensors;
  std::ifstream lines(python_file("expected.txt"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string in_file, name, type, shape, bytes;
    words >> in_file >> name >> type >> shape >> bytes;
    if (in_file != file) continue;
    tensors.push_back(
        {name, element_type_of_torch(type).value(), shape_of(shape), bytes_of_digits(bytes)});
  }
  if (tensors.empty()) throw std::runtime_error("expected.txt has nothing of " + file);
  return tensors;
}

}  // namespace lockstep::testing
