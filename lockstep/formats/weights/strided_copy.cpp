#include "lockstep/formats/weights/strided_copy.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::vector<std::uint8_t> strided_copy(
    std::span<const std::uint8_t> storage, std::span<const std::int64_t> shape,
    std::span<const std::int64_t> strides, std::size_t element_bytes) {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  std::vector<std::uint8_t> copy(count * element_bytes);
  std::vector<std::int64_t> index(shape.size(), 0);
  std::uint64_t from = 0;  // wraps around where a stride that no element uses is huge
  for (std::size_t to = 0; to < copy.size(); to += element_bytes) {
    std::memcpy(copy.data() + to, storage.data() + from * element_bytes, element_bytes);
    // The next index: the last dimension that is not at its end goes on, those behind begin anew.
    for (std::size_t i = shape.size(); i-- > 0;) {
      from += static_cast<std::uint64_t>(strides[i]);
      if (++index[i] < shape[i]) break;
      from -= static_cast<std::uint64_t>(strides[i]) * static_cast<std::uint64_t>(shape[i]);
      index[i] = 0;
    }
  }
  return copy;
}

}  // namespace lockstep
