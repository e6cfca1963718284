#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The fields of one JSON object, read with checks.
///
/// A field that is missing or of another kind is a DataError that names the file, the field with
/// the objects around it, and what it must be. The `_if` functions take null and a missing field
/// for nothing. Keeps a reference to the object.
///
///     const JsonFields fields(parse_strict_json(text, file), file);
///     const std::int64_t step = fields.count("step");
class JsonFields {
 public:
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

  /// `file` begins every message.
  JsonFields(const nlohmann::json& object, std::string file);

  /// True if the field is there and not null.
  bool has(const char* key) const;

  std::string text(const char* key) const;
  bool flag(const char* key) const;
  /// A whole number within the bounds.
  std::int64_t count(const char* key, std::int64_t least = 0, std::int64_t most = kMost) const;
  int small_count(const char* key, int least = 0) const;
  /// A finite number.
  double number(const char* key) const;
  /// A finite number that is not negative.
  double seconds(const char* key) const;

  std::optional<std::string> text_if(const char* key) const;
  std::optional<bool> flag_if(const char* key) const;
  std::optional<std::int64_t> count_if(
      const char* key, std::int64_t least = 0, std::int64_t most = kMost) const;
  std::optional<double> number_if(const char* key) const;
  /// NaN for null and a missing field, as NaN is written.
  double number_or_nan(const char* key) const;

  JsonFields object(const char* key) const;
  std::optional<JsonFields> object_if(const char* key) const;

  /// Nothing for null; a missing field is refused.
  std::optional<JsonFields> object_or_null(const char* key) const;
  std::vector<JsonFields> objects(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  std::vector<double> numbers(const char* key) const;
  std::map<std::string, std::string> text_map(const char* key) const;

  /// The object itself, for what the functions above do not cover.
  const nlohmann::json& items() const { return *object_; }
  /// Throws a DataError: "FILE: FIELD must EXPECTED: VALUE".
  [[noreturn]] void refuse(const char* key, const std::string& expected) const;

 private:
  JsonFields(const nlohmann::json& object, std::string file, std::string name);
  const nlohmann::json* find(const char* key) const;
  const nlohmann::json& at(const char* key) const;

  const nlohmann::json* object_;
  std::string file_;
  std::string name_;  // of this object within the file, with a dot at its end
};

/// Limits of what a file may ask for.
struct JsonLimits {
  std::size_t bytes = std::size_t{1} << 20;
  std::size_t depth = 16;  ///< objects and lists within each other
};

/// Parses JSON that may come from a stranger. What is no JSON in UTF-8, above the limits, or has a
/// key twice in one object is a DataError that begins with `file`.
nlohmann::json parse_strict_json(
    std::string_view text, const std::string& file, const JsonLimits& limits = {});

}  // namespace lockstep
