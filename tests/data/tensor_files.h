#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::testing {

/// A tensor to be written, with its bytes.
struct WrittenTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

template <typename Number>
std::vector<std::uint8_t> bytes_of_numbers(const std::vector<Number>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(Number));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// Makes a tensor of float32 that counts from `first`.
inline WrittenTensor counted_floats(
    const std::string& name, const std::vector<std::int64_t>& shape, float first = 0) {
  std::vector<float> numbers(*tensor_bytes(ElementType::kFloat32, shape) / sizeof(float));
  for (float& number : numbers) number = first++;
  return {name, ElementType::kFloat32, shape, bytes_of_numbers(numbers)};
}

/// Makes a tensor of int64 with one dimension.
inline WrittenTensor integers(const std::string& name, const std::vector<std::int64_t>& numbers) {
  return {name, ElementType::kInt64, {static_cast<std::int64_t>(numbers.size())},
      bytes_of_numbers(numbers)};
}

/// Writes a safetensors file and returns its path.
inline std::string write_tensors(
    const std::filesystem::path& path, const std::vector<WrittenTensor>& tensors) {
  std::vector<TensorEntry> entries;
  for (const WrittenTensor& tensor : tensors)
    entries.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
  write_weights(path, entries);
  return path.string();
}

}  // namespace lockstep::testing
