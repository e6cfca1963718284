#include "lockstep/formats/weights/tensor_parts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/formats/weights/safetensors.h"

namespace lockstep {

template <typename Object>
void list_fields(Object& object, TensorRange& range) {
  object("whole", range.whole);
  if constexpr (Object::kReads) {
    if (object.fields().has("order")) object("order", range.order);
  } else if (!range.order.empty()) {
    object("order", range.order);
  }
  object("begin", range.begin);
  object("end", range.end);
}

namespace {

constexpr JsonLimits kPartsLimits{.bytes = std::size_t{64} << 20, .depth = 4};

// The sizes of files are checked; those of a range are by tensor_bytes(), of which bytes are least.
std::int64_t elements_of(std::span<const std::int64_t> shape) {
  return static_cast<std::int64_t>(tensor_bytes(ElementType::kUint8, shape).value());
}

std::string order_text(std::span<const std::int64_t> order) {
  return order.empty() ? "" : concat(" in the order ", shape_text(order));
}

std::string elements_text(std::int64_t begin, std::int64_t end) {
  return concat("elements [", begin, ", ", end, ')');
}

template <typename... Parts>
[[noreturn]] void refuse_part(
    const std::string& file, const std::string& name, const Parts&... reason) {
  throw DataError(concat(file, ": the part of the tensor ", printable(name), ": ", reason...));
}

bool is_order(const std::vector<std::int64_t>& order, std::size_t dimensions) {
  if (order.empty()) return true;
  std::vector<std::int64_t> row_major(dimensions);
  std::iota(row_major.begin(), row_major.end(), 0);
  return order != row_major && std::ranges::is_permutation(order, row_major);
}

void check_range(const TensorRange& range, const TensorEntry* part, const std::string& name,
    const std::string& file) {
  if (part == nullptr) refuse_part(file, name, "the file has no tensor of that name");
  if (!tensor_bytes(part->type, range.whole))
    refuse_part(file, name, "no tensor can have the shape ", shape_text(range.whole));
  if (!is_order(range.order, range.whole.size()))
    refuse_part(file, name, shape_text(range.order), " is no order of its dimensions");
  const std::int64_t elements = elements_of(range.whole);
  const bool is_within = range.begin < range.end && range.end <= elements;
  if (!is_within || range.size() == elements)
    refuse_part(
        file, name, "[", range.begin, ", ", range.end, ") is no part of ", elements, " elements");
  if (part->shape != std::vector<std::int64_t>{range.size()})
    refuse_part(file, name, "it has the shape ", shape_text(part->shape), ", not ",
        shape_text(std::vector{range.size()}));
}

}  // namespace

std::int64_t TensorRange::elements() const { return elements_of(whole); }

std::vector<std::int64_t> TensorRange::sizes() const {
  std::vector<std::int64_t> sizes(whole.size(), 1);
  if (!sizes.empty()) sizes.back() = size();
  return sizes;
}

std::vector<std::int64_t> memory_order(
    std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  if (is_contiguous(sizes, strides)) return {};
  std::vector<std::int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
      [&](std::int64_t dimension) { return strides[static_cast<std::size_t>(dimension)]; });
  return order;
}

std::vector<std::int64_t> strides_of(
    std::span<const std::int64_t> sizes, std::span<const std::int64_t> order) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t dimension = order.empty() ? i : static_cast<std::size_t>(order[i]);
    strides[dimension] = stride;
    stride *= sizes[dimension];
  }
  return strides;
}

std::string to_json(const TensorRanges& ranges) {
  JsonWriter::Json object = JsonWriter::Json::object();
  for (const auto& [name, range] : ranges) object[name] = JsonWriter::json_of(range);
  return object.dump();
}

TensorRanges ranges_in(const TensorFile& tensors, const std::string& file) {
  const auto text = tensors.metadata().find(kTensorParts);
  if (text == tensors.metadata().end()) return {};
  const std::string place = concat(file, ": ", kTensorParts);
  const nlohmann::json object = parse_strict_json(text->second, place, kPartsLimits);
  TensorRanges ranges;
  for (const auto& item : JsonFields(object, place).items().items()) {
    const JsonFields of_tensor(item.value(), concat(place, ": ", printable(item.key())));
    auto range = JsonReader::read<TensorRange>(of_tensor);
    if (of_tensor.items().size() != (range.order.empty() ? 3U : 4U))
      refuse_part(file, item.key(), "only whole, order, begin and end are said of it");
    check_range(range, tensors.find(item.key()), item.key(), file);
    ranges.emplace(item.key(), std::move(range));
  }
  return ranges;
}

void JoinedTensor::copy(std::int64_t begin, std::span<std::uint8_t> to) const {
  const auto width = static_cast<std::int64_t>(bytes_of(type));
  const std::int64_t end = begin + std::ssize(to) / width;
  for (const Piece& piece : pieces) {
    const std::int64_t first = std::max(begin, piece.begin);
    const std::int64_t last = std::min(end, piece.begin + std::ssize(piece.bytes) / width);
    if (first >= last) continue;
    std::memcpy(to.data() + (first - begin) * width,
        piece.bytes.data() + (first - piece.begin) * width,
        static_cast<std::size_t>((last - first) * width));
  }
}

namespace {

/// Finds gaps and overlaps of a tensor's pieces, which are in order.
class CoverCheck {
 public:
  CoverCheck(const JoinedTensor& tensor, std::span<const NamedTensorFile> files)
      : tensor_(tensor), files_(files) {}

  void run() const {
    std::int64_t covered = 0;
    const JoinedTensor::Piece* before = nullptr;
    for (const JoinedTensor::Piece& piece : tensor_.pieces) {
      const bool comes_twice = before != nullptr && piece.bytes.empty();
      if (piece.begin < covered || comes_twice) refuse_overlap(*before, piece, covered);
      if (piece.begin > covered) refuse_gap(covered, piece.begin, before, &piece);
      covered = end_of(piece);
      before = &piece;
    }
    const std::int64_t all = elements_of(tensor_.shape);
    if (covered < all) refuse_gap(covered, all, before, nullptr);
  }

 private:
  std::int64_t end_of(const JoinedTensor::Piece& piece) const {
    return piece.begin + std::ssize(piece.bytes) / static_cast<int>(bytes_of(tensor_.type));
  }

  std::string file_of(const JoinedTensor::Piece* piece) const {
    return piece == nullptr ? "" : concat(" ", files_[piece->file].name);
  }

  std::string tensor_text() const {
    return concat("the tensor ", printable(tensor_.name), " of shape ", shape_text(tensor_.shape));
  }

  [[noreturn]] void refuse_overlap(const JoinedTensor::Piece& before,
      const JoinedTensor::Piece& piece, std::int64_t covered) const {
    const std::string which = piece.bytes.empty()
                                  ? std::string("all")
                                  : elements_text(piece.begin, std::min(covered, end_of(piece)));
    throw DataError(concat(files_[piece.file].name, ": ", which, " of ", tensor_text(),
        " are in another part, too:", file_of(&before)));
  }

  [[noreturn]] void refuse_gap(std::int64_t begin, std::int64_t end,
      const JoinedTensor::Piece* before, const JoinedTensor::Piece* after) const {
    throw DataError(concat(files_[(before != nullptr ? before : after)->file].name, ": ",
        elements_text(begin, end), " of ", tensor_text(), " are in no part; the others are in",
        file_of(before), before != nullptr && after != nullptr ? " and" : "", file_of(after)));
  }

  const JoinedTensor& tensor_;
  std::span<const NamedTensorFile> files_;
};

// A tensor's first piece says what it is.
void add_piece(JoinedTensor& tensor, const TensorEntry& entry, const TensorRange& range,
    std::size_t file, std::span<const NamedTensorFile> files) {
  if (tensor.pieces.empty()) {
    tensor.type = entry.type;
    tensor.shape = range.whole;
    tensor.order = range.order;
  } else if (tensor.type != entry.type || tensor.shape != range.whole ||
             tensor.order != range.order) {
    throw DataError(concat(files[file].name, ": the tensor ", printable(entry.name), " is ",
        torch_name(entry.type), ' ', shape_text(range.whole), order_text(range.order), " here and ",
        torch_name(tensor.type), ' ', shape_text(tensor.shape), order_text(tensor.order), " in ",
        files[tensor.pieces.front().file].name));
  }
  tensor.pieces.push_back({.begin = range.begin, .file = file, .bytes = entry.bytes});
}

}  // namespace

std::vector<JoinedTensor> join_parts(std::span<const NamedTensorFile> files) {
  std::vector<JoinedTensor> joined;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t file = 0; file < files.size(); ++file) {
    const TensorRanges ranges = ranges_in(*files[file].tensors, files[file].name);
    for (const TensorEntry& entry : files[file].tensors->entries()) {
      const auto [place, is_new] = places.emplace(entry.name, joined.size());
      if (is_new) joined.push_back({.name = entry.name, .shape = {}, .order = {}, .pieces = {}});
      const auto range = ranges.find(entry.name);
      const TensorRange whole{.whole = entry.shape};
      add_piece(
          joined[place->second], entry, range == ranges.end() ? whole : range->second, file, files);
    }
  }
  for (JoinedTensor& tensor : joined) {
    std::ranges::stable_sort(tensor.pieces, {}, &JoinedTensor::Piece::begin);
    CoverCheck(tensor, files).run();
  }
  return joined;
}

namespace {

std::vector<std::uint8_t> row_major_bytes(const JoinedTensor& tensor) {
  std::vector<std::uint8_t> in_order(*tensor_bytes(tensor.type, tensor.shape));
  std::vector<std::uint8_t> bytes(in_order.size());
  tensor.copy(0, in_order);
  copy_row_major(
      bytes, in_order, tensor.shape, strides_of(tensor.shape, tensor.order), bytes_of(tensor.type));
  return bytes;
}

}  // namespace

void write_safetensors(ByteSink& sink, std::span<const JoinedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const JoinedTensor& tensor : tensors)
    entries.push_back(
        {.name = tensor.name, .type = tensor.type, .shape = tensor.shape, .bytes = {}});
  for (const std::size_t place : write_safetensors_header(sink, entries, metadata)) {
    const JoinedTensor& tensor = tensors[place];
    if (!tensor.order.empty())
      sink.write(row_major_bytes(tensor));
    else
      for (const JoinedTensor::Piece& piece : tensor.pieces) sink.write(piece.bytes);
  }
}

}  // namespace lockstep
