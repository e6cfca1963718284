#include "lockstep/formats/weights/tensor_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_set>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

// The most dimensions that a tensor of PyTorch can have in its iterators.
constexpr std::size_t kMostDimensions = 64;

struct Row {
  ElementType type;
  std::size_t bytes;
  std::string_view torch;
  std::string_view safetensors;
};

constexpr std::array kRows{
    Row{ElementType::kBool, 1, "bool", "BOOL"},
    Row{ElementType::kUint8, 1, "uint8", "U8"},
    Row{ElementType::kInt8, 1, "int8", "I8"},
    Row{ElementType::kFloat8E5m2, 1, "float8_e5m2", "F8_E5M2"},
    Row{ElementType::kFloat8E4m3fn, 1, "float8_e4m3fn", "F8_E4M3"},
    Row{ElementType::kFloat8E8m0fnu, 1, "float8_e8m0fnu", "F8_E8M0"},
    Row{ElementType::kFloat8E4m3fnuz, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    Row{ElementType::kFloat8E5m2fnuz, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    Row{ElementType::kInt16, 2, "int16", "I16"},
    Row{ElementType::kUint16, 2, "uint16", "U16"},
    Row{ElementType::kFloat16, 2, "float16", "F16"},
    Row{ElementType::kBfloat16, 2, "bfloat16", "BF16"},
    Row{ElementType::kInt32, 4, "int32", "I32"},
    Row{ElementType::kUint32, 4, "uint32", "U32"},
    Row{ElementType::kFloat32, 4, "float32", "F32"},
    Row{ElementType::kComplex64, 8, "complex64", "C64"},
    Row{ElementType::kFloat64, 8, "float64", "F64"},
    Row{ElementType::kInt64, 8, "int64", "I64"},
    Row{ElementType::kUint64, 8, "uint64", "U64"},
    Row{ElementType::kComplex128, 16, "complex128", ""},
};

// A type's row is found by its number.
static_assert([] {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].type) != i) return false;
  }
  return true;
}());

const Row& row_of(ElementType type) { return kRows.at(static_cast<std::size_t>(type)); }

std::optional<ElementType> find(std::string_view Row::*column, std::string_view name) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.*column == name; });
  if (row == kRows.end() || name.empty()) return std::nullopt;
  return row->type;
}

std::string first_parts(const std::vector<TensorEntry>& entries) {
  std::set<std::string> parts;
  for (const TensorEntry& entry : entries) {
    const std::size_t dot = entry.name.find('.');
    if (dot != std::string::npos) parts.insert(entry.name.substr(0, dot));
  }
  return parts.empty() ? "none" : first_of({parts.begin(), parts.end()}, parts.size());
}

struct Dimension {
  std::size_t size = 1;
  std::size_t stride = 0;  // in elements of the source
};

// Neighbours that one loop can walk become one: height and width of channels last do.
std::vector<Dimension> merged(
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const Dimension next{static_cast<std::size_t>(shape[i]), static_cast<std::size_t>(strides[i])};
    if (!dimensions.empty() && dimensions.back().stride == next.size * next.stride) {
      dimensions.back() = {dimensions.back().size * next.size, next.stride};
    } else {
      dimensions.push_back(next);
    }
  }
  return dimensions;
}

// The longer loop runs inside; a plane of a convolution's weight lies in the nearest cache, so the
// order in which it is written does not matter.
template <std::size_t kBytes>
void copy_plane(
    std::uint8_t*& to, const std::uint8_t* from, const Dimension& outer, const Dimension& inner) {
  const bool is_outer_longer = outer.size > inner.size;
  const Dimension &slow = is_outer_longer ? inner : outer, &fast = is_outer_longer ? outer : inner;
  const std::size_t slow_step = (is_outer_longer ? 1 : inner.size) * kBytes;
  const std::size_t fast_step = (is_outer_longer ? inner.size : 1) * kBytes;
  for (std::size_t i = 0; i < slow.size; ++i) {
    const std::uint8_t* source = from + i * slow.stride * kBytes;
    std::uint8_t* target = to + i * slow_step;
    for (std::size_t k = 0; k < fast.size; ++k) {
      std::memcpy(target, source, kBytes);
      target += fast_step;
      source += fast.stride * kBytes;
    }
  }
  to += outer.size * inner.size * kBytes;
}

template <std::size_t kBytes>
void copy_all(std::uint8_t*& to, const std::uint8_t* from, std::span<const Dimension> dimensions) {
  if (dimensions.size() == 2) {
    copy_plane<kBytes>(to, from, dimensions[0], dimensions[1]);
    return;
  }
  const Dimension& outermost = dimensions.front();
  for (std::size_t i = 0; i < outermost.size; ++i)
    copy_all<kBytes>(to, from + i * outermost.stride * kBytes, dimensions.subspan(1));
}

}  // namespace

std::size_t bytes_of(ElementType type) { return row_of(type).bytes; }

std::string_view torch_name(ElementType type) { return row_of(type).torch; }

std::optional<std::string_view> safetensors_name(ElementType type) {
  const std::string_view name = row_of(type).safetensors;
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<ElementType> element_type_of_torch(std::string_view name) {
  return find(&Row::torch, name);
}

std::optional<ElementType> element_type_of_safetensors(std::string_view name) {
  return find(&Row::safetensors, name);
}

TensorFile::TensorFile(std::vector<TensorEntry> entries,
    std::map<std::string, std::string> metadata, FileMemory memory)
    : entries_(std::move(entries)), metadata_(std::move(metadata)), memory_(std::move(memory)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool is_new = places_.emplace(entries_[i].name, i).second;
    check(is_new, "TensorFile: two tensors have the name ", entries_[i].name);
  }
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : &entries_[place->second];
}

TensorFile TensorFile::part(std::string_view prefix) const {
  const std::string front = concat(prefix, '.');
  std::vector<TensorEntry> chosen;
  for (const TensorEntry& entry : entries_) {
    if (!entry.name.starts_with(front)) continue;
    chosen.push_back(entry);
    chosen.back().name.erase(0, front.size());
  }
  // Python keeps one name of tied weights, and says in the metadata which: {left out: kept}. The
  // one that it kept may lie outside of this part.
  auto metadata = metadata_;
  for (const auto& [name, kept] : metadata_) {
    const TensorEntry* const entry = find(kept);
    if (!name.starts_with(front) || entry == nullptr || find(name) != nullptr) continue;
    chosen.push_back(*entry);
    chosen.back().name = name.substr(front.size());
    metadata.erase(name);
  }
  check(!chosen.empty(), "no tensor's name begins with ", front,
      " (names begin with: ", first_parts(entries_), ')');
  return TensorFile(std::move(chosen), std::move(metadata), memory_);
}

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

void check_names_and_shapes(const char* operation, std::span<const TensorEntry> entries) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    const std::string name = printable(entry.name);
    check(is_utf8(entry.name), operation, ": the name ", name, " is not UTF-8");
    check(names.insert(entry.name).second, operation, ": two tensors have the name ", name);
    check(tensor_bytes(entry.type, entry.shape).has_value(), operation, ": tensor ", name,
        " cannot have the shape ", shape_text(entry.shape));
  }
}

void check_entries(const char* operation, std::span<const TensorEntry> entries) {
  check_names_and_shapes(operation, entries);
  for (const TensorEntry& entry : entries)
    check(tensor_bytes(entry.type, entry.shape) == entry.bytes.size(), operation, ": tensor ",
        printable(entry.name), " has ", entry.bytes.size(), " bytes, which is not what ",
        torch_name(entry.type), " of shape ", shape_text(entry.shape), " needs");
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

std::optional<std::uint64_t> view_end(std::uint64_t offset, std::span<const std::int64_t> shape,
    std::span<const std::int64_t> strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return offset;
  std::uint64_t end = 0;
  if (__builtin_add_overflow(offset, std::uint64_t{1}, &end)) return std::nullopt;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::uint64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step)) return std::nullopt;
    if (__builtin_add_overflow(end, step, &end)) return std::nullopt;
  }
  return end;
}

void copy_row_major(std::span<std::uint8_t> to, std::span<const std::uint8_t> from,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes) {
  if (to.empty()) return;
  std::vector<Dimension> dimensions = merged(shape, strides);
  while (dimensions.size() < 2) dimensions.insert(dimensions.begin(), Dimension{});
  std::uint8_t* end = to.data();
  switch (element_bytes) {
    case 1:
      return copy_all<1>(end, from.data(), dimensions);
    case 2:
      return copy_all<2>(end, from.data(), dimensions);
    case 4:
      return copy_all<4>(end, from.data(), dimensions);
    case 8:
      return copy_all<8>(end, from.data(), dimensions);
    default:
      return copy_all<16>(end, from.data(), dimensions);
  }
}

}  // namespace lockstep
