#include "bench/experiment/sample.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

// Null is NaN: measured and not finite. What an older program did not write is 0.
double seconds_of(const JsonFields& fields, const char* key) {
  return fields.items().contains(key) ? fields.number_or_nan(key) : 0;
}

}  // namespace

std::string to_json(const Sample& sample) {
  OrderedJson values = OrderedJson::object();
  for (const auto& [name, value] : sample.values) values[name] = number(value);
  const OrderedJson line = {{"v", kVersion}, {"study", sample.study}, {"cell", sample.cell},
      {"round", sample.round}, {"time", text_or_null(sample.time)},
      {"settings", OrderedJson(sample.settings)}, {"command", OrderedJson(sample.command)},
      {"places", sample.places}, {"oversubscribed", sample.oversubscribed}, {"values", values},
      {"seconds", number(sample.seconds)},
      {"calibration_seconds", number(sample.calibration_seconds)},
      {"other_share", number(sample.other_share)}, {"code", sample.code},
      {"failure", text_or_null(sample.failure)},
      {"not_measurable", text_or_null(sample.not_measurable)}};
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Sample parse_sample(std::string_view text, const std::string& where) {
  const nlohmann::json object = parse_strict_json(text, where);
  const JsonFields fields(object, where);
  if (const auto version = fields.count("v"); version != kVersion)
    throw DataError(concat(where, ": v is ", version, "; this program reads ", kVersion));
  Sample sample{.study = fields.text("study"),
      .cell = fields.text("cell"),
      .round = fields.small_count("round", 1),
      .time = fields.text_if("time").value_or(""),
      .oversubscribed = fields.flag_if("oversubscribed").value_or(false),
      .seconds = seconds_of(fields, "seconds"),
      .calibration_seconds = seconds_of(fields, "calibration_seconds"),
      .other_share = seconds_of(fields, "other_share"),
      .failure = fields.text_if("failure").value_or(""),
      .not_measurable = fields.text_if("not_measurable").value_or("")};
  if (fields.has("settings")) sample.settings = fields.text_map("settings");
  if (fields.has("command")) sample.command = fields.texts("command");
  if (fields.has("places")) sample.places = fields.small_count("places", 1);
  if (fields.has("code")) sample.code = fields.small_count("code");
  if (const auto values = fields.object_if("values")) {
    for (const auto& [name, value] : values->items().items()) {
      sample.values[name] = values->number_or_nan(name.c_str());
    }
  }
  return sample;
}

}  // namespace lockstep::bench
