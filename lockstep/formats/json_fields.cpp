#include "lockstep/formats/json_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestShown = 60;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

/// A watch over a text before it is parsed: the depth, and the keys of the objects that are open.
///
/// Not a callback of the parser, which looks through all objects of a list at the end of each.
class Watch final : public nlohmann::json_sax<Json> {
 public:
  Watch(const std::string& file, std::size_t most) : file_(file), most_(most) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return opened();
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) {
      throw DataError(concat(file_, ": a key comes twice: ", Json(key).dump().substr(0, 100)));
    }
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return closed();
  }
  bool start_array(std::size_t) override { return opened(); }
  bool end_array() override { return closed(); }

  /// What is no JSON is left to the parser to say.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  bool opened() {
    if (++depth_ > most_) {
      throw DataError(concat(file_, ": more than ", most_, " objects and lists within each other"));
    }
    return true;
  }
  bool closed() {
    --depth_;
    return true;
  }

  const std::string& file_;
  std::size_t most_;
  std::size_t depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

JsonFields::JsonFields(const Json& object, std::string file)
    : JsonFields(object, std::move(file), "") {}

JsonFields::JsonFields(const Json& object, std::string file, std::string name)
    : object_(&object), file_(std::move(file)), name_(std::move(name)) {
  if (object.is_object()) return;
  const std::string what = name_.empty() ? "it" : name_.substr(0, name_.size() - 1);
  throw DataError(concat(file_, ": ", what, " must be a JSON object: ", shown(object)));
}

bool JsonFields::has(const char* key) const { return find(key) != nullptr; }

std::string JsonFields::text(const char* key) const {
  if (!at(key).is_string()) refuse(key, "be a text");
  return at(key).get<std::string>();
}

bool JsonFields::flag(const char* key) const {
  if (!at(key).is_boolean()) refuse(key, "be true or false");
  return at(key).get<bool>();
}

std::int64_t JsonFields::count(const char* key, std::int64_t least, std::int64_t most) const {
  const Json& value = at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost)) &&
                    value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  if (!fits && most == kMost) refuse(key, concat("be a whole number of at least ", least));
  if (!fits) refuse(key, concat("be a whole number from ", least, " to ", most));
  return value.get<std::int64_t>();
}

int JsonFields::small_count(const char* key, int least) const {
  return static_cast<int>(count(key, least, std::numeric_limits<int>::max()));
}

double JsonFields::number(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "be a finite number");
  return value.get<double>();
}

double JsonFields::seconds(const char* key) const {
  const double value = number(key);
  if (value < 0) refuse(key, "be a number of at least 0");
  return value;
}

std::optional<std::string> JsonFields::text_if(const char* key) const {
  return has(key) ? std::optional(text(key)) : std::nullopt;
}

std::optional<bool> JsonFields::flag_if(const char* key) const {
  return has(key) ? std::optional(flag(key)) : std::nullopt;
}

std::optional<std::int64_t> JsonFields::count_if(
    const char* key, std::int64_t least, std::int64_t most) const {
  return has(key) ? std::optional(count(key, least, most)) : std::nullopt;
}

std::optional<double> JsonFields::number_if(const char* key) const {
  return has(key) ? std::optional(number(key)) : std::nullopt;
}

double JsonFields::number_or_nan(const char* key) const {
  return number_if(key).value_or(std::numeric_limits<double>::quiet_NaN());
}

JsonFields JsonFields::object(const char* key) const { return {at(key), file_, name_ + key + "."}; }

std::optional<JsonFields> JsonFields::object_if(const char* key) const {
  return has(key) ? std::optional(object(key)) : std::nullopt;
}

std::optional<JsonFields> JsonFields::object_or_null(const char* key) const {
  if (!items().contains(key)) refuse(key, "be there");
  return object_if(key);
}

std::vector<JsonFields> JsonFields::objects(const char* key) const {
  if (!at(key).is_array()) refuse(key, "be a list of objects");
  std::vector<JsonFields> objects;
  for (const Json& object : at(key))
    objects.push_back(JsonFields(object, file_, concat(name_, key, "[", objects.size(), "].")));
  return objects;
}

std::vector<std::string> JsonFields::texts(const char* key) const {
  if (!at(key).is_array()) refuse(key, "be a list of texts");
  std::vector<std::string> texts;
  for (const Json& text : at(key)) {
    if (!text.is_string()) refuse(key, "be a list of texts");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<double> JsonFields::numbers(const char* key) const {
  if (!at(key).is_array()) refuse(key, "be a list of numbers");
  std::vector<double> numbers;
  for (const Json& number : at(key)) {
    if (!number.is_number() || !std::isfinite(number.get<double>()))
      refuse(key, "be a list of finite numbers");
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

std::map<std::string, std::string> JsonFields::text_map(const char* key) const {
  const JsonFields inner = object(key);
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : inner.items().items()) texts[name] = inner.text(name.c_str());
  return texts;
}

void JsonFields::refuse(const char* key, const std::string& expected) const {
  const auto found = object_->find(key);
  const std::string value = found == object_->end() ? "it is missing" : shown(*found);
  throw DataError(concat(file_, ": ", name_, printable_path(key), " must ", expected, ": ", value));
}

const Json* JsonFields::find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& JsonFields::at(const char* key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) refuse(key, "be there");
  return *found;
}

Json parse_strict_json(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw DataError(
        concat(file, ": ", text.size(), " bytes; at most ", limits.bytes, " belong here"));
  }
  Watch watch(file, limits.depth);
  try {
    Json::sax_parse(text, &watch);
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    throw DataError(concat(file, ": offset ", offset, ": is not JSON in UTF-8"));
  } catch (const Json::exception&) {
    throw DataError(concat(file, ": has a number that no double can hold"));
  }
}

}  // namespace lockstep
