#include "lockstep/formats/weights/safetensors.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/core/utf8.h"
#include "lockstep/formats/weights/little_endian.h"
#include "lockstep/formats/weights/mapped_file.h"
#include "lockstep/formats/weights/refuse.h"
#include "lockstep/formats/weights/safetensors_header.h"
#include "lockstep/formats/weights/tensor_bytes.h"

namespace lockstep {
namespace {

// A safetensors file: the header's length (64 bits, little-endian), the header, the tensors' bytes.
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

std::string_view header_text(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes) {
    refuse(file, bytes.size(), "the file ends within the 8 bytes of its header's length");
  }
  const std::uint64_t length = little_endian(bytes.first(kLengthBytes));
  if (length > kMostHeaderBytes) {
    refuse(file, 0, "a header of ", length, " bytes; the format allows ", kMostHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    refuse(
        file, 0, "a header of ", length, " bytes in a file of ", bytes.size(),
        ": it was cut, or is no safetensors file");
  }
  const auto* front = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  const std::string_view text(front, static_cast<std::size_t>(length));
  if (!text.starts_with('{')) refuse(file, kLengthBytes, "the header does not begin with {");
  return text;
}

// Some writers fill the header up so that the tensors are aligned: with blanks, says the format.
void check_padding(std::string_view text, const std::string& file) {
  const std::size_t end = text.find_last_not_of(' ');
  if (text[end] != '}')
    refuse(file, kLengthBytes + end, "the header does not end with } and blanks");
}

void check_size(const SafetensorsTensor& tensor, std::uint64_t offset, const std::string& file) {
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  const std::string what = concat(
      "tensor ", printable(tensor.name), ", ", torch_name(tensor.type), " of shape ",
      shape_text(tensor.shape));
  if (!bytes)
    refuse(file, offset, what, ": has more elements or dimensions than a tensor can have");
  if (tensor.end - tensor.begin != *bytes) {
    refuse(file, offset, what, ": needs ", *bytes, " bytes, not ", tensor.end - tensor.begin);
  }
}

/// Checks that the tensors cover the data without hole or overlap.
void check_places(
    const SafetensorsHeader& header, std::uint64_t data_start, std::uint64_t data_size,
    const std::string& file) {
  std::vector<const SafetensorsTensor*> order;
  for (const SafetensorsTensor& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* left, const auto* right) {
    return std::pair(left->begin, left->end) < std::pair(right->begin, right->end);
  });
  std::uint64_t covered = 0;
  for (const SafetensorsTensor* tensor : order) {
    const std::string name = printable(tensor->name);
    const std::uint64_t offset = data_start + covered;
    if (tensor->end < tensor->begin)
      refuse(file, offset, "tensor ", name, " ends before it begins");
    if (tensor->begin < covered) refuse(file, offset, "tensor ", name, " overlaps the one before");
    if (tensor->begin > covered) refuse(file, offset, "a hole before tensor ", name);
    if (tensor->end > data_size)
      refuse(file, offset, "tensor ", name, " ends behind the file's end");
    check_size(*tensor, offset, file);
    covered = tensor->end;
  }
  if (covered < data_size) {
    refuse(file, data_start + covered, data_size - covered, " bytes that belong to no tensor");
  }
}

TensorFile parse(
    std::span<const std::uint8_t> bytes, const std::string& name,
    std::shared_ptr<const void> memory) {
  const std::string_view text = header_text(bytes, name);
  check_padding(text, name);
  SafetensorsHeader header = parse_safetensors_header(text, name);
  const auto data = bytes.subspan(kLengthBytes + text.size());
  check_places(header, kLengthBytes + text.size(), data.size(), name);
  std::vector<TensorEntry> entries;
  for (SafetensorsTensor& tensor : header.tensors) {
    entries.push_back(
        {std::move(tensor.name), tensor.type, std::move(tensor.shape),
         data.subspan(tensor.begin, tensor.end - tensor.begin)});
  }
  return TensorFile(std::move(entries), std::move(header.metadata), std::move(memory));
}

}  // namespace

TensorFile read_safetensors(const std::filesystem::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  return parse(file->bytes(), file->name(), file);
}

TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& name) {
  return parse(bytes, name, nullptr);
}

}  // namespace lockstep
