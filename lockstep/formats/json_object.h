#pragma once

#include <cmath>
#include <concepts>
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
///       object("name", link.name);
///       object("latency", link.latency);
///     }
///
/// Fields may be such structs themselves, or lists of them. A reader says what it accepts, and
/// alone changes the struct: `if constexpr (Object::kReads)`.
class JsonWriter {
 public:
  static constexpr bool kReads = false;
  using Json = nlohmann::ordered_json;

  template <typename Item>
  static Json json_of(const Item& item) {
    if constexpr (requires(JsonWriter writer, Item fields) { list_fields(writer, fields); }) {
      JsonWriter writer;
      list_fields(writer, const_cast<Item&>(item));  // only a reader changes it
      return std::move(writer.json_);
    } else {
      return item;
    }
  }
  template <typename Item>
  static Json json_of(const std::vector<Item>& items) {
    Json list = Json::array();
    for (const Item& item : items) list.push_back(json_of(item));
    return list;
  }
  template <typename Item>
  static Json json_of(const std::optional<Item>& item) {
    return item ? json_of(*item) : Json();
  }

  void operator()(const char* key, const auto& value, int = 0) { json_[key] = json_of(value); }
  void number(const char* key, double value) { json_[key] = value; }
  void number_or_nan(const char* key, double value) { json_[key] = value; }
  void text_or_null(const char* key, const std::string& text) {
    json_[key] = text.empty() ? Json() : Json(text);
  }
  void count(const char* key, std::int64_t value) { json_[key] = value; }
  void milliseconds(const char* key, double seconds) { json_[key] = 1e3 * seconds; }
  void texts(const char* key, const auto& pairs) {
    Json& texts = json_[key] = Json::object();
    for (const auto& [name, text] : pairs) texts[name] = text;
  }
  void list(const char* key, const auto& items, auto write, auto) {
    Json& list = json_[key] = Json::array();
    for (const auto& item : items) list.push_back(write(item));
  }
  void list_if_any(const char* key, const auto& items, auto write, auto read) {
    if (!items.empty()) list(key, items, write, read);
  }
  void choice(const char* key, NamedEnum auto value, const char*) { json_[key] = name_of(value); }

 private:
  Json json_;
};

class JsonReader {
 public:
  static constexpr bool kReads = true;

  template <typename Item>
  static Item read(const JsonFields& fields) {
    JsonReader reader(fields);
    Item item{};
    list_fields(reader, item);
    return item;
  }

  explicit JsonReader(const JsonFields& fields) : fields_(fields) {}
  const JsonFields& fields() const { return fields_; }

  void operator()(const char* key, std::string& value) { value = fields_.text(key); }
  void operator()(const char* key, bool& value) { value = fields_.flag(key); }
  /// A finite number that is not negative; that of number() may be.
  void operator()(const char* key, double& value) { value = fields_.seconds(key); }
  void number(const char* key, double& value) { value = fields_.number(key); }
  /// NaN, which files have as null.
  void number_or_nan(const char* key, double& value) { value = fields_.number_or_nan(key); }
  /// Empty for null and a missing field.
  void text_or_null(const char* key, std::string& text) {
    text = fields_.text_if(key).value_or("");
  }
  void operator()(const char* key, std::optional<double>& value) { value = fields_.number_if(key); }
  void operator()(const char* key, std::optional<std::int64_t>& value) {
    value = fields_.count_if(key);
  }
  void operator()(const char* key, std::vector<double>& values) { values = fields_.numbers(key); }
  void operator()(const char* key, std::vector<std::string>& values) {
    values = fields_.texts(key);
  }
  /// A whole number of at least `least`.
  void operator()(const char* key, std::integral auto& value, int least = 0) {
    using Whole = std::remove_reference_t<decltype(value)>;
    constexpr bool kIsSmall = sizeof(Whole) < sizeof(std::int64_t);
    value = static_cast<Whole>(fields_.count(
        key, least, kIsSmall ? std::int64_t{std::numeric_limits<int>::max()} : JsonFields::kMost));
  }
  /// A number that a training may reach.
  void count(const char* key, std::int64_t& value) {
    value = fields_.count(key, 0, std::int64_t{1} << 53);
  }
  void operator()(const char* key, std::vector<int>& values) {
    for (const double number : fields_.numbers(key)) {
      if (number < 1 || number > 1 << 20 || number != std::floor(number))
        fields_.refuse(key, "be whole numbers from 1 to 2^20");
      values.push_back(static_cast<int>(number));
    }
  }
  void operator()(const char* key, std::vector<std::int64_t>& values) {
    constexpr double kMost = 1e15;  // which a double holds exactly
    for (const double number : fields_.numbers(key)) {
      if (number < 0 || number > kMost || number != std::floor(number))
        fields_.refuse(key, "be whole numbers from 0 to 1e15");
      values.push_back(static_cast<std::int64_t>(number));
    }
  }
  template <typename Item>
  void operator()(const char* key, Item& item) {
    item = read<Item>(fields_.object(key));
  }
  template <typename Item>
  void operator()(const char* key, std::vector<Item>& items) {
    for (const JsonFields& fields : fields_.objects(key)) items.push_back(read<Item>(fields));
  }
  /// Null or such a struct.
  template <typename Item>
  void operator()(const char* key, std::optional<Item>& item) {
    if (const auto fields = fields_.object_or_null(key)) item = read<Item>(*fields);
  }
  void texts(const char* key, auto& pairs) {
    for (const auto& [name, text] : fields_.text_map(key)) pairs.insert(pairs.end(), {name, text});
  }
  /// Structs that are written and read by functions of their own.
  void list(const char* key, auto& items, auto, auto read) {
    for (const JsonFields& fields : fields_.objects(key)) items.push_back(read(fields));
  }
  void list_if_any(const char* key, auto& items, auto write, auto read) {
    if (fields_.items().contains(key)) list(key, items, write, read);
  }
  /// A time that a struct has in seconds and a file in milliseconds.
  void milliseconds(const char* key, double& seconds) { seconds = fields_.seconds(key) / 1e3; }
  /// One of an enumeration's names; `expected` is what the message of a refusal says.
  template <NamedEnum Enum>
  void choice(const char* key, Enum& value, const char* expected) {
    const std::string name = fields_.text(key);
    for (const auto& each : names_of(Enum{})) {
      if (each.name != name) continue;
      value = each.value;
      return;
    }
    fields_.refuse(key, expected);
  }

 private:
  const JsonFields& fields_;
};

}  // namespace lockstep
