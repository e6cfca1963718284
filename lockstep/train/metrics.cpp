#include "lockstep/train/metrics.h"

#include <algorithm>
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

namespace {

constexpr off_t kTail = 1 << 16;  // holds the last lines, whose restart is the highest

std::string tail_of(const FileDescriptor& file) {
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::clamp<off_t>(size, 0, kTail)), '\0');
  const off_t from = size - static_cast<off_t>(text.size());
  const ssize_t read = ::pread(file.get(), text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return text;
}

// Of the last whole line that is a record; -1 where there is none.
int last_restart(const std::string& text) {
  int restart = -1;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const auto line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!line.is_object()) continue;
    const auto field = line.find("restart");
    if (field != line.end() && field->is_number_integer())
      restart = std::max(restart, field->get<int>());
  }
  return restart;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, bool goes_on)
    : path_(path),
      file_(::open(
          path.c_str(),
          (goes_on ? O_RDWR : O_WRONLY | O_EXCL) | O_CREAT | O_APPEND | O_CLOEXEC,
          0644)) {
  if (!file_) throw_errno("metrics: cannot create", path_);
  if (!goes_on) return;
  const std::string tail = tail_of(file_);
  restarts_ = last_restart(tail) + 1;
  // A disk that was full may have left half a line, which must not spoil ours.
  if (!tail.empty() && tail.back() != '\n') write("\n");
}

void MetricsLog::append(const MetricRecord& record) { write(json_line(record, utc_now()) + "\n"); }

void MetricsLog::write(const std::string& line) const {
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
