#include "lockstep/record/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

// That json_of() does not always write, or not at all.
constexpr std::array<std::string_view, 4> kOtherKeys = {"v", "time", "nonfinite", "loss_scale"};

}  // namespace

void put_number(Json& object, const std::string& name, const std::optional<double>& value) {
  object[name] = nullptr;
  if (!value) return;
  if (std::isfinite(*value)) {
    object[name] = *value;
  } else {
    object["nonfinite"].push_back(name);
  }
}

Json json_of(const MetricRecord& record) {
  Json line = Json::object();
  put_number(line, "elapsed", record.elapsed);
  line["rank"] = record.rank;
  line["restart"] = record.restart;
  line["epoch"] = record.epoch;
  line["step"] = record.step;
  line["split"] = record.split;
  for (const ScoreName& score : kScores) put_number(line, score.name, record.scores.*score.value);
  for (const RateName& rate : kRates) {
    const std::optional<double>& value = record.*rate.value;
    if (value || rate.is_null_if_absent) put_number(line, rate.name, value);
  }
  for (const auto& [name, value] : record.more) {
    const bool is_taken =
        line.contains(name) || std::ranges::find(kOtherKeys, name) != kOtherKeys.end();
    check(!is_taken && is_utf8(name),
        "metrics: a number of your own needs a UTF-8 name that "
        "metrics.jsonl does not use itself: ",
        printable(name));
    put_number(line, name, value);
  }
  if (const auto found = line.find("nonfinite"); found != line.end()) {
    const Json names = *found;
    line.erase(found);
    line["nonfinite"] = names;  // last
  }
  return line;
}

std::string json_line(const MetricRecord& record, const std::string& utc_time) {
  Json line = {{"v", 1}, {"time", utc_time}};
  line.update(json_of(record));
  return line.dump();
}

MeterReading& MeterReading::operator+=(const MeterReading& later) {
  steps += later.steps;
  samples += later.samples;
  loss_sum += later.loss_sum;
  seconds += later.seconds;
  data_seconds += later.data_seconds;
  comm_seconds += later.comm_seconds;
  return *this;
}

}  // namespace lockstep
