#include "lockstep/formats/weights/tensor_bytes.h"

#include <limits>
#include <unordered_set>

#include "lockstep/core/error.h"
#include "lockstep/core/utf8.h"

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
    check(
        bytes == entry.bytes.size(), operation, ": tensor ", name, " has ", entry.bytes.size(),
        " bytes, which is not what ", torch_name(entry.type), " of shape ", shape_text(entry.shape),
        " needs");
  }
}

}  // namespace lockstep
