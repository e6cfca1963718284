#include "lockstep/train/metrics.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

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

MetricsLog::MetricsLog(const std::string& path)
    : path_(path),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_) throw_errno("metrics: cannot create", path_);
}

void MetricsLog::append(const MetricRecord& record) {
  const std::string line = json_line(record, utc_now()) + "\n";
  ssize_t written = 0;
  do {
    written = ::write(file_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  if (written >= 0)
    errno = ENOSPC;  // a file takes part of a write only when it cannot take the rest
  throw_errno("metrics: cannot write", path_);
}

}  // namespace lockstep
