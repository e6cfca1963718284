#include "lockstep/formats/weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

/// One tensor in the header of a safetensors file; bytes count from the header's end.
struct SafetensorsTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The header of a safetensors file, in its order.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
};

using nlohmann::json;

// The JSON begins after its own length, a 64-bit number.
constexpr std::size_t kJsonOffset = 8;

/// A parser of the only shape that a header may have:
///
///     {"__metadata__": {KEY: TEXT, ...}, NAME: {"dtype": TEXT, "shape": [...], "data_offsets":
///     [...]}, ...}
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kName:
        open_name();
        return true;
      default:
        refuse("an object where none belongs");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) close_tensor();
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool key(std::string& text) override {
    const bool is_new =
        place_ == Place::kTop ? names_.insert(text).second : keys_.insert(text).second;
    if (!is_new) refuse("the key ", printable(text), " comes twice");
    if (place_ == Place::kTop) place_ = Place::kName;
    if (place_ == Place::kTensor) open_field(text);
    (place_ == Place::kName ? name_ : key_) = std::move(text);
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(key_, std::move(text));
    } else if (place_ == Place::kDtype) {
      set_type(text);
      place_ = Place::kTensor;
    } else {
      refuse("a text where none belongs");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) refuse("a list where none belongs");
    if (in_list_) refuse("a list within a list");
    in_list_ = true;
    return true;
  }

  bool end_array() override {
    in_list_ = false;
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(json::number_unsigned_t number) override {
    if (!in_list_) refuse("a number where none belongs");
    if (place_ == Place::kOffsets) {
      offsets_.push_back(number);
      return true;
    }
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("a size of ", number);
    }
    tensor_.shape.push_back(static_cast<std::int64_t>(number));
    return true;
  }

  bool number_integer(json::number_integer_t number) override {
    refuse("the negative number ", number);
  }
  bool number_float(json::number_float_t, const std::string& text) override {
    refuse("the number ", printable(text), ", which is not a whole number of 64 bits");
  }
  bool null() override { refuse("null where a value belongs"); }
  bool boolean(bool) override { refuse("a truth value where none belongs"); }
  bool binary(json::binary_t&) override { refuse("binary data"); }

  bool parse_error(
      std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw DataError(concat(
        file_, ": offset ", kJsonOffset + position - 1, ": the header is not JSON in UTF-8"));
  }

 private:
  enum class Place { kStart, kTop, kName, kMetadata, kTensor, kDtype, kShape, kOffsets, kEnd };

  void open_name() {
    keys_.clear();
    place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
    tensor_ = SafetensorsTensor{.name = name_, .shape = {}};
    offsets_.clear();
  }

  void open_field(const std::string& field) {
    if (field == "dtype") {
      place_ = Place::kDtype;
    } else if (field == "shape") {
      place_ = Place::kShape;
    } else if (field == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      refuse("the key ", printable(field), " is none of dtype, shape, data_offsets");
    }
  }

  void set_type(const std::string& text) {
    const auto type = element_type_of_safetensors(text);
    if (!type) refuse("the type ", printable(text), " is not known here");
    tensor_.type = *type;
  }

  void close_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!keys_.contains(field)) refuse("the key \"", field, "\" is missing");
    }
    if (offsets_.size() != 2) refuse("data_offsets has ", offsets_.size(), " numbers, not 2");
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_.tensors.push_back(std::move(tensor_));
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... reason) const {
    const std::string where = name_.empty() ? "" : concat(" at ", printable(name_));
    throw DataError(concat(file_, ": offset ", kJsonOffset, ": header", where, ": ", reason...));
  }

  const std::string& file_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  bool in_list_ = false;
  std::string name_;
  std::string key_;
  SafetensorsTensor tensor_;
  std::vector<std::uint64_t> offsets_;
  std::unordered_set<std::string> names_;
  std::set<std::string> keys_;
};

/// Reads the JSON of a header. What is no JSON, deeper or other than the format says, or has a key
/// twice is a DataError that begins with `file`; the places of the tensors are not yet checked.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file) {
  HeaderReader reader(file);
  json::sax_parse(text, &reader);
  return reader.take();
}

// A safetensors file: the header's length (64 bits, little-endian), the header, the tensors' bytes.
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

std::string_view header_text(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes) {
    refuse_at(file, bytes.size(), "the file ends within the 8 bytes of its header's length");
  }
  const std::uint64_t length = little_endian(bytes.first(kLengthBytes));
  if (length > kMostHeaderBytes) {
    refuse_at(file, 0, "a header of ", length, " bytes; the format allows ", kMostHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    refuse_at(file, 0, "a header of ", length, " bytes in a file of ", bytes.size(),
        ": it was cut, or is not a safetensors file");
  }
  const std::string_view text = text_of(bytes.subspan(kLengthBytes, length));
  if (!text.starts_with('{')) refuse_at(file, kLengthBytes, "the header does not begin with {");
  return text;
}

// Some writers fill the header up so that the tensors are aligned: with blanks, says the format.
void check_padding(std::string_view text, const std::string& file) {
  const std::size_t end = text.find_last_not_of(' ');
  if (text[end] != '}')
    refuse_at(file, kLengthBytes + end, "the header does not end with } and blanks");
}

void check_size(const SafetensorsTensor& tensor, std::uint64_t offset, const std::string& file) {
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  const std::string what = concat("tensor ", printable(tensor.name), ", ", torch_name(tensor.type),
      " of shape ", shape_text(tensor.shape));
  if (!bytes)
    refuse_at(file, offset, what, ": has more elements or dimensions than a tensor can have");
  if (tensor.end - tensor.begin != *bytes) {
    refuse_at(file, offset, what, ": needs ", *bytes, " bytes, not ", tensor.end - tensor.begin);
  }
}

/// Checks that the tensors cover the data without hole or overlap.
void check_places(const SafetensorsHeader& header, std::uint64_t data_start,
    std::uint64_t data_size, const std::string& file) {
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
      refuse_at(file, offset, "tensor ", name, " ends before it begins");
    if (tensor->begin < covered)
      refuse_at(file, offset, "tensor ", name, " overlaps the one before");
    if (tensor->begin > covered) refuse_at(file, offset, "a hole before tensor ", name);
    if (tensor->end > data_size)
      refuse_at(file, offset, "tensor ", name, " ends behind the file's end");
    check_size(*tensor, offset, file);
    covered = tensor->end;
  }
  if (covered < data_size) {
    refuse_at(file, data_start + covered, data_size - covered, " bytes that belong to no tensor");
  }
}

TensorFile parse_whole(
    std::span<const std::uint8_t> bytes, const std::string& name, FileMemory memory) {
  const std::string_view text = header_text(bytes, name);
  check_padding(text, name);
  SafetensorsHeader header = parse_safetensors_header(text, name);
  const auto data = bytes.subspan(kLengthBytes + text.size());
  check_places(header, kLengthBytes + text.size(), data.size(), name);
  std::vector<TensorEntry> entries;
  for (SafetensorsTensor& tensor : header.tensors) {
    entries.push_back({std::move(tensor.name), tensor.type, std::move(tensor.shape),
        data.subspan(tensor.begin, tensor.end - tensor.begin)});
  }
  return TensorFile(std::move(entries), std::move(header.metadata), std::move(memory));
}

constexpr std::size_t kAlignment = 8;

void check_writable(
    std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata) {
  check_names_and_shapes("write_safetensors", entries);
  for (const TensorEntry& entry : entries) {
    check(entry.name != "__metadata__",
        "write_safetensors: a tensor cannot be named __metadata__, the format keeps that name");
    check(safetensors_name(entry.type).has_value(), "write_safetensors: tensor ",
        printable(entry.name), " is ", torch_name(entry.type), ", which the format does not have");
  }
  for (const auto& [key, text] : metadata) {
    check(is_utf8(key) && is_utf8(text), "write_safetensors: metadata ", printable(key),
        " is not UTF-8");
  }
}

/// Returns the places of the entries in the order in which their bytes lie: widest type first, then
/// by name.
std::vector<std::size_t> byte_order(std::span<const TensorEntry> entries) {
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    const TensorEntry &a = entries[left], &b = entries[right];
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  return order;
}

std::uint64_t data_bytes(const TensorEntry& entry) {
  return *tensor_bytes(entry.type, entry.shape);
}

std::string tensor_text(const TensorEntry& entry, std::uint64_t begin) {
  return concat(json(entry.name).dump(), R"(:{"dtype":")", *safetensors_name(entry.type),
      R"(","shape":)", json(entry.shape).dump(), R"(,"data_offsets":[)", begin, ',',
      begin + data_bytes(entry), "]}");
}

std::string header_of(std::span<const TensorEntry> entries, const std::vector<std::size_t>& order,
    const std::map<std::string, std::string>& metadata) {
  std::vector<std::uint64_t> begins(entries.size());
  std::uint64_t end = 0;
  for (const std::size_t place : order) {
    begins[place] = end;
    end += data_bytes(entries[place]);
  }
  std::string text = "{";
  if (!metadata.empty()) text += R"("__metadata__":)" + json(metadata).dump();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (text.size() > 1) text += ',';
    text += tensor_text(entries[i], begins[i]);
  }
  text += '}';
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

}  // namespace

TensorFile read_safetensors(const std::filesystem::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  return file->checked([&] { return parse_whole(file->bytes(), file->name(), file); });
}

TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& name) {
  return parse_whole(bytes, name, nullptr);
}

std::vector<std::size_t> write_safetensors_header(ByteSink& sink,
    std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata) {
  check_writable(entries, metadata);
  auto order = byte_order(entries);
  const std::string header = header_of(entries, order, metadata);
  check(header.size() <= kMostHeaderBytes, "write_safetensors: a header of ", header.size(),
      " bytes; the format allows ", kMostHeaderBytes);
  std::string length;
  append_little_endian(length, header.size(), 8);
  sink.write(length);
  sink.write(header);
  return order;
}

void write_safetensors(ByteSink& sink, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  check_entries("write_safetensors", entries);
  for (const std::size_t place : write_safetensors_header(sink, entries, metadata))
    sink.write(entries[place].bytes);
}

}  // namespace lockstep
