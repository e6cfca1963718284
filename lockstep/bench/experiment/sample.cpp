#include "lockstep/bench/experiment/sample.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

/// Takes fields out of an object; one that is missing leaves what a Sample has from the start.
class Fields {
 public:
  Fields(const json& object, const std::string& where) : object_(object), where_(where) {}

  void require(const char* name) const {
    const json* value = find(name);
    if (value == nullptr || value->is_null()) refuse(name, "be there");
  }

  void take(const char* name, std::string& text) const {
    const json* value = find(name);
    if (value == nullptr || value->is_null()) return;
    if (!value->is_string()) refuse(name, "be a text");
    text = value->get<std::string>();
  }

  void take(const char* name, double& number) const {
    const json* value = find(name);
    if (value != nullptr) number = number_of(*value, name);
  }

  void take(const char* name, bool& flag) const {
    const json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse(name, "be true or false");
    flag = value->get<bool>();
  }

  void take(const char* name, int& count, int least) const {
    const json* value = find(name);
    if (value == nullptr) return;
    const auto most = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
    const bool is_count = value->is_number_unsigned() && value->get<std::uint64_t>() <= most;
    if (!is_count || value->get<int>() < least) {
      refuse(name, concat("be a whole number of at least ", least));
    }
    count = value->get<int>();
  }

  void take(const char* name, std::map<std::string, double>& numbers) const {
    for (const auto& [key, value] : object(name).items()) numbers[key] = number_of(value, name);
  }

  void take(const char* name, std::map<std::string, std::string>& texts) const {
    for (const auto& [key, value] : object(name).items()) {
      if (!value.is_string()) refuse(name, "hold texts");
      texts[key] = value.get<std::string>();
    }
  }

  void take(const char* name, std::vector<std::string>& texts) const {
    const json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_array()) refuse(name, "be a list");
    for (const json& text : *value) {
      if (!text.is_string()) refuse(name, "hold texts");
      texts.push_back(text.get<std::string>());
    }
  }

 private:
  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  const json& object(const char* name) const {
    static const json kNothing = json::object();
    const json* value = find(name);
    if (value == nullptr) return kNothing;
    if (!value->is_object()) refuse(name, "be an object");
    return *value;
  }

  double number_of(const json& value, const char* name) const {
    if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value.is_number()) refuse(name, "be numbers or null");
    return value.get<double>();
  }

  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    throw DataError(concat(where_, ": ", name, " must ", expected));
  }

  const json& object_;
  const std::string& where_;
};

void check_version(const Fields& fields, const std::string& where) {
  int version = 0;
  fields.take("v", version, 0);
  if (version == kVersion) return;
  throw DataError(concat(where, ": v is ", version, "; this program reads ", kVersion));
}

}  // namespace

std::string to_json(const Sample& sample) {
  OrderedJson values = OrderedJson::object();
  for (const auto& [name, value] : sample.values) values[name] = number(value);
  const OrderedJson line = {
      {"v", kVersion},
      {"study", sample.study},
      {"cell", sample.cell},
      {"round", sample.round},
      {"time", text_or_null(sample.time)},
      {"settings", OrderedJson(sample.settings)},
      {"command", OrderedJson(sample.command)},
      {"places", sample.places},
      {"oversubscribed", sample.oversubscribed},
      {"values", values},
      {"seconds", number(sample.seconds)},
      {"calibration_seconds", number(sample.calibration_seconds)},
      {"other_share", number(sample.other_share)},
      {"code", sample.code},
      {"failure", text_or_null(sample.failure)},
      {"not_measurable", text_or_null(sample.not_measurable)}};
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Sample parse_sample(std::string_view text, const std::string& where) {
  const json object = parse_strict_json(text, where);
  if (!object.is_object()) throw DataError(where + ": is no JSON object");
  const Fields fields(object, where);
  for (const char* name : {"v", "study", "cell", "round"}) fields.require(name);
  check_version(fields, where);
  Sample sample;
  fields.take("study", sample.study);
  fields.take("cell", sample.cell);
  fields.take("round", sample.round, 1);
  fields.take("time", sample.time);
  fields.take("settings", sample.settings);
  fields.take("command", sample.command);
  fields.take("places", sample.places, 1);
  fields.take("oversubscribed", sample.oversubscribed);
  fields.take("values", sample.values);
  fields.take("seconds", sample.seconds);
  fields.take("calibration_seconds", sample.calibration_seconds);
  fields.take("other_share", sample.other_share);
  fields.take("code", sample.code, 0);
  fields.take("failure", sample.failure);
  fields.take("not_measurable", sample.not_measurable);
  return sample;
}

}  // namespace lockstep::bench
