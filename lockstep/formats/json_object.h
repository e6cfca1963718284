#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep {

/// Writes a struct as a JSON object; JsonReader reads it back. Both go by one list of its fields,
/// which stands in the namespace of the struct:
///
///     template <typename Object>
///     void list_fields(Object& object, Link& link) {
///       object.value("name", link.name);
///       object.amount("latency", link.latency);
///     }
///
/// The functions of both classes say what a reader accepts.
class JsonWriter {
 public:
  using Json = nlohmann::ordered_json;

  template <typename Item>
  static Json object_of(const Item& item) {
    JsonWriter writer;
    list_fields(writer, const_cast<Item&>(item));  // only a reader changes it
    return std::move(writer.json_);
  }

  void value(const char* key, const auto& value) { json_[key] = value; }
  void amount(const char* key, double value) { json_[key] = value; }
  void count(const char* key, auto value, int = 0) { json_[key] = value; }
  void counts(const char* key, const std::vector<std::int64_t>& values) { json_[key] = values; }
  void milliseconds(const char* key, double seconds) { json_[key] = 1e3 * seconds; }
  void number_or_null(const char* key, std::optional<double> value) {
    json_[key] = value ? Json(*value) : Json(nullptr);
  }
  template <typename Enum>
  void choice(const char* key, Enum value, const char*) {
    json_[key] = name_of(value);
  }
  void object(const char* key, const auto& item) { json_[key] = object_of(item); }
  void list(const char* key, const auto& items) {
    json_[key] = Json::array();
    for (const auto& item : items) json_[key].push_back(object_of(item));
  }

 private:
  Json json_;
};

class JsonReader {
 public:
  template <typename Item>
  static Item object_of(const JsonFields& fields) {
    JsonReader reader(fields);
    Item item{};
    list_fields(reader, item);
    return item;
  }

  explicit JsonReader(const JsonFields& fields) : fields_(fields) {}
  const JsonFields& fields() const { return fields_; }

  void value(const char* key, std::string& value) { value = fields_.text(key); }
  void value(const char* key, bool& value) { value = fields_.flag(key); }
  /// A finite number.
  void value(const char* key, double& value) { value = fields_.number(key); }
  void value(const char* key, std::vector<double>& values) { values = fields_.numbers(key); }
  /// A finite number that is not negative.
  void amount(const char* key, double& value) { value = fields_.seconds(key); }
  /// A whole number of at least `least`.
  template <typename Whole>
  void count(const char* key, Whole& value, int least = 0) {
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kLimit =
        sizeof(Whole) < sizeof kMost ? static_cast<std::int64_t>(std::numeric_limits<Whole>::max())
                                     : kMost;
    value = static_cast<Whole>(fields_.count(key, least, kLimit));
  }
  void counts(const char* key, std::vector<std::int64_t>& values) {
    constexpr double kMost = 1e15;  // which a double holds exactly
    for (const double number : fields_.numbers(key)) {
      if (number < 0 || number > kMost || number != std::floor(number))
        fields_.refuse(key, "be whole numbers from 0 to 1e15");
      values.push_back(static_cast<std::int64_t>(number));
    }
  }
  /// An amount in milliseconds, of a struct that has seconds.
  void milliseconds(const char* key, double& seconds) { seconds = fields_.seconds(key) / 1e3; }
  void number_or_null(const char* key, std::optional<double>& value) {
    value = fields_.number_if(key);
  }
  /// One of an enumeration's names; `expected` is what the message of a refusal says.
  template <typename Enum>
  void choice(const char* key, Enum& value, const char* expected) {
    const std::string name = fields_.text(key);
    for (const auto& each : names_of(Enum{})) {
      if (each.name != name) continue;
      value = each.value;
      return;
    }
    fields_.refuse(key, expected);
  }
  template <typename Item>
  void object(const char* key, Item& item) {
    item = object_of<Item>(fields_.object(key));
  }
  template <typename Item>
  void list(const char* key, std::vector<Item>& items) {
    for (const JsonFields& fields : fields_.objects(key)) items.push_back(object_of<Item>(fields));
  }

 private:
  const JsonFields& fields_;
};

}  // namespace lockstep
