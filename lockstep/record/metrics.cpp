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

void put(Json& line, Json& nonfinite, const char* name, const std::optional<double>& value) {
  line[name] = nullptr;
  if (!value) return;
  if (std::isfinite(*value)) {
    line[name] = *value;
  } else {
    nonfinite.push_back(name);
  }
}

}  // namespace

Json json_of(const MetricRecord& record) {
  Json line = Json::object();
  Json nonfinite = Json::array();
  put(line, nonfinite, "elapsed", record.elapsed);
  line["rank"] = record.rank;
  line["restart"] = record.restart;
  line["epoch"] = record.epoch;
  line["step"] = record.step;
  line["split"] = record.split;
  for (const ScoreName& score : kScores)
    put(line, nonfinite, score.name, record.scores.*score.value);
  for (const RateName& rate : kRates) {
    const std::optional<double>& value = record.*rate.value;
    if (value || rate.is_null_if_absent) put(line, nonfinite, rate.name, value);
  }
  for (const auto& [name, value] : record.more) {
    const bool is_taken =
        line.contains(name) || std::ranges::find(kOtherKeys, name) != kOtherKeys.end();
    check(!is_taken && is_utf8(name),
        "metrics: a number of your own needs a UTF-8 name that "
        "metrics.jsonl does not use itself: ",
        printable(name));
    put(line, nonfinite, name.c_str(), value);
  }
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
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

namespace {

constexpr std::size_t kTail = 1 << 16;  // holds the last lines, whose restart is the highest

// Calls `take` with each whole line that is an object.
template <typename Take>
void for_each_object(const std::string& text, Take take) {
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    if (line.is_object()) take(line);
  }
}

int restart_of(const nlohmann::json& line) {
  const auto field = line.find("restart");
  return field != line.end() && field->is_number_integer() ? field->get<int>() : -1;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, bool goes_on) : file_("metrics", path, goes_on) {
  if (!goes_on) return;
  const std::string tail = file_.tail(kTail);
  int restart = -1;
  for_each_object(tail, [&](const nlohmann::json& line) {
    restart = std::max(restart, restart_of(line));
    const auto split = line.find("split"), step = line.find("step");
    if (split != line.end() && split->is_string() && step != line.end() &&
        step->is_number_integer())
      had_.emplace(split->get<std::string>(), step->get<std::int64_t>());
  });
  restarts_ = restart + 1;
  // A disk that was full may have left half a line, which must not spoil ours.
  if (!tail.empty() && tail.back() != '\n') file_.put_before("\n");
}

bool MetricsLog::had(const std::string& split, std::int64_t step) const {
  return had_.contains({split, step});
}

}  // namespace lockstep
