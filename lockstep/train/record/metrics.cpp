#include "lockstep/train/record/metrics.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

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

std::string json_line(const MetricRecord& record, const std::string& utc_time) {
  Json line = {{"v", 1}, {"time", utc_time}};
  Json nonfinite = Json::array();
  put(line, nonfinite, "elapsed", record.elapsed);
  line["rank"] = record.rank;
  line["restart"] = record.restart;
  line["epoch"] = record.epoch;
  line["step"] = record.step;
  line["split"] = record.split;
  put(line, nonfinite, "loss", record.loss);
  put(line, nonfinite, "accuracy", record.accuracy);
  put(line, nonfinite, "accuracy5", record.accuracy5);
  put(line, nonfinite, "lr", record.lr);
  put(line, nonfinite, "samples_per_s", record.samples_per_s);
  put(line, nonfinite, "step_ms", record.step_ms);
  put(line, nonfinite, "data_ms", record.data_ms);
  put(line, nonfinite, "comm_ms", record.comm_ms);
  if (record.loss_scale) line["loss_scale"] = *record.loss_scale;
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
  return line.dump();
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char whole[32], text[48];
  std::strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03dZ", whole, static_cast<int>(since_epoch.count() % 1000));
  return text;
}

}  // namespace lockstep
