#include "lockstep/formats/weights/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

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

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file) {
  HeaderReader reader(file);
  json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace lockstep
