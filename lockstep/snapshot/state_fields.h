#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/formats/json_fields.h"
#include "lockstep/nn/grad_scaler_state.h"

// What a state.json consists of is one list of fields for each struct, a function that is given a
// FieldWriter or a FieldReader. Both have a function of the same name for each kind of field.

namespace lockstep {

inline constexpr JsonLimits kStateLimits{.bytes = std::size_t{64} << 20};

/// Writes the fields of an object, in the order of the list.
class FieldWriter {
 public:
  using Json = nlohmann::ordered_json;

  const Json& object() const { return object_; }

  void whole(const char* key, std::int64_t value) { object_[key] = value; }
  void whole_if(const char* key, const std::optional<std::int64_t>& value) {
    object_[key] = value ? Json(*value) : Json(nullptr);
  }
  void count(const char* key, std::int64_t value) { object_[key] = value; }
  void small(const char* key, int value, int = 0) { object_[key] = value; }
  void number(const char* key, double value) { object_[key] = value; }
  void seconds(const char* key, double value) { object_[key] = value; }
  void text(const char* key, const std::string& value) { object_[key] = value; }
  void nullable(const char* key, const std::optional<double>& value) {
    object_[key] = value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
  }
  void sizes(const char* key, const std::vector<int>& values) { object_[key] = values; }
  void texts(const char* key, const auto& pairs) {
    Json& texts = object_[key] = Json::object();
    for (const auto& [name, text] : pairs) texts[name] = text;
  }

  void fields(const char* key, const auto& value, auto list) {
    FieldWriter inner;
    list(inner, value);
    object_[key] = inner.object_;
  }
  template <typename T>
  void optional(const char* key, const std::optional<T>& value, auto list) {
    object_[key] = nullptr;
    if (value) fields(key, *value, list);
  }
  void list(const char* key, const auto& values, auto write, auto) {
    Json& list = object_[key] = Json::array();
    for (const auto& value : values) list.push_back(write(value));
  }
  void list_if_any(const char* key, const auto& values, auto write, auto read) {
    if (!values.empty()) list(key, values, write, read);
  }

 private:
  Json object_ = Json::object();
};

/// Reads the fields of an object, each as JsonFields checks it.
class FieldReader {
 public:
  explicit FieldReader(const JsonFields& fields) : fields_(fields) {}

  /// Any number that is not negative.
  void whole(const char* key, std::int64_t& value) { value = fields_.count(key); }
  void whole_if(const char* key, std::optional<std::int64_t>& value) {
    value = fields_.count_if(key);
  }
  /// A number that a training may reach.
  void count(const char* key, std::int64_t& value) {
    value = fields_.count(key, 0, std::int64_t{1} << 53);
  }
  void small(const char* key, int& value, int least = 0) {
    value = fields_.small_count(key, least);
  }
  void number(const char* key, double& value) { value = fields_.number(key); }
  void seconds(const char* key, double& value) { value = fields_.seconds(key); }
  void text(const char* key, std::string& value) { value = fields_.text(key); }
  void nullable(const char* key, double& value) { value = fields_.number_or_nan(key); }
  void nullable(const char* key, std::optional<double>& value) { value = fields_.number_if(key); }
  void sizes(const char* key, std::vector<int>& values) {
    for (const double size : fields_.numbers(key)) {
      const bool fits = size >= 1 && size <= 1 << 20 && std::trunc(size) == size;
      if (!fits) fields_.refuse(key, "be a list of numbers of layers");
      values.push_back(static_cast<int>(size));
    }
  }
  void texts(const char* key, auto& pairs) {
    for (const auto& [name, text] : fields_.text_map(key)) pairs.insert(pairs.end(), {name, text});
  }

  void fields(const char* key, auto& value, auto list) {
    FieldReader inner(fields_.object(key));
    list(inner, value);
  }
  template <typename T>
  void optional(const char* key, std::optional<T>& value, auto list) {
    if (fields_.object_or_null(key)) fields(key, value.emplace(), list);
  }
  void list(const char* key, auto& values, auto, auto read) {
    for (const JsonFields& entry : fields_.objects(key)) values.push_back(read(entry));
  }
  void list_if_any(const char* key, auto& values, auto write, auto read) {
    if (fields_.items().contains(key)) list(key, values, write, read);
  }

 private:
  JsonFields fields_;
};

/// The fields of a scaler's state, which each state.json has, or null.
inline constexpr auto kScalerFields = [](auto& io, auto& scaler) {
  io.number("scale", scaler.scale);
  io.number("growth_factor", scaler.growth_factor);
  io.number("backoff_factor", scaler.backoff_factor);
  io.whole("growth_interval", scaler.growth_interval);
  io.whole("growth_tracker", scaler.growth_tracker);
};

}  // namespace lockstep
