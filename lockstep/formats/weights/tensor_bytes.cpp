#include "lockstep/formats/weights/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

std::optional<std::uint64_t> tensor_bytes(ElementType type, std::span<const std::int64_t> shape) {
  if (shape.size() > kMostDimensions) return std::nullopt;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  auto bytes = static_cast<std::int64_t>(bytes_of(type));
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      is_empty = true;
      continue;
    }
    if (bytes > kMost / size) return std::nullopt;
    bytes *= size;
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(bytes);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  if (shape.size() > kMostDimensions) return concat('(', shape.size(), " dimensions)");
  std::string text = "(";
  for (const std::int64_t size : shape) {
    text += concat(text.size() > 1 ? ", " : "", size);
  }
  return text + ')';
}

void check_entries(const char* operation, std::span<const TensorEntry> entries) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    const std::string name = printable(entry.name);
    check(is_utf8(entry.name), operation, ": the name ", name, " is not UTF-8");
    check(names.insert(entry.name).second, operation, ": two tensors have the name ", name);
    const auto bytes = tensor_bytes(entry.type, entry.shape);
    check(bytes == entry.bytes.size(), operation, ": tensor ", name, " has ", entry.bytes.size(),
        " bytes, which is not what ", torch_name(entry.type), " of shape ", shape_text(entry.shape),
        " needs");
  }
}

bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::vector<std::uint8_t> strided_copy(std::span<const std::uint8_t> storage,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes) {
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
