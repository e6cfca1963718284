#include "lockstep/formats/weights/tensor_parts.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
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
  object("begin", range.begin);
  object("end", range.end);
}

namespace {

constexpr JsonLimits kPartsLimits{.bytes = std::size_t{64} << 20, .depth = 4};

// The sizes of files are checked; those of a range are by tensor_bytes(), of which bytes are least.
std::int64_t elements_of(std::span<const std::int64_t> shape) {
  return static_cast<std::int64_t>(tensor_bytes(ElementType::kUint8, shape).value());
}

std::string elements_text(std::int64_t begin, std::int64_t end) {
  return concat("elements [", begin, ", ", end, ')');
}

template <typename... Parts>
[[noreturn]] void refuse_part(
    const std::string& file, const std::string& name, const Parts&... reason) {
  throw DataError(concat(file, ": the part of the tensor ", printable(name), ": ", reason...));
}

void check_range(const TensorRange& range, const TensorEntry* part, const std::string& name,
    const std::string& file) {
  if (part == nullptr) refuse_part(file, name, "the file has no tensor of that name");
  if (!tensor_bytes(part->type, range.whole))
    refuse_part(file, name, "no tensor can have the shape ", shape_text(range.whole));
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
    if (of_tensor.items().size() != 3)
      refuse_part(file, item.key(), "only whole, begin and end are said of it");
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
void add_piece(JoinedTensor& tensor, const TensorEntry& entry, const TensorRange* range,
    std::size_t file, std::span<const NamedTensorFile> files) {
  const auto& shape = range != nullptr ? range->whole : entry.shape;
  if (tensor.pieces.empty()) {
    tensor.type = entry.type;
    tensor.shape = shape;
  } else if (tensor.type != entry.type || tensor.shape != shape) {
    throw DataError(concat(files[file].name, ": the tensor ", printable(entry.name), " is ",
        torch_name(entry.type), ' ', shape_text(shape), " here and ", torch_name(tensor.type), ' ',
        shape_text(tensor.shape), " in ", files[tensor.pieces.front().file].name));
  }
  tensor.pieces.push_back(
      {.begin = range != nullptr ? range->begin : 0, .file = file, .bytes = entry.bytes});
}

}  // namespace

std::vector<JoinedTensor> join_parts(std::span<const NamedTensorFile> files) {
  std::vector<JoinedTensor> joined;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t file = 0; file < files.size(); ++file) {
    const TensorRanges ranges = ranges_in(*files[file].tensors, files[file].name);
    for (const TensorEntry& entry : files[file].tensors->entries()) {
      const auto [place, is_new] = places.emplace(entry.name, joined.size());
      if (is_new) joined.push_back({.name = entry.name, .shape = {}, .pieces = {}});
      const auto range = ranges.find(entry.name);
      add_piece(joined[place->second], entry, range == ranges.end() ? nullptr : &range->second,
          file, files);
    }
  }
  for (JoinedTensor& tensor : joined) {
    std::ranges::stable_sort(tensor.pieces, {}, &JoinedTensor::Piece::begin);
    CoverCheck(tensor, files).run();
  }
  return joined;
}

void write_safetensors(ByteSink& sink, std::span<const JoinedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  for (const JoinedTensor& tensor : tensors)
    entries.push_back(
        {.name = tensor.name, .type = tensor.type, .shape = tensor.shape, .bytes = {}});
  for (const std::size_t place : write_safetensors_header(sink, entries, metadata))
    for (const JoinedTensor::Piece& piece : tensors[place].pieces) sink.write(piece.bytes);
}

}  // namespace lockstep
