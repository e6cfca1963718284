#include "lockstep/train/record/metrics.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"

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
  for (const ScoreName& score : kScores)
    put(line, nonfinite, score.name, record.scores.*score.value);
  for (const RateName& rate : kRates) {
    const std::optional<double>& value = record.*rate.value;
    if (value || rate.is_null_if_absent) put(line, nonfinite, rate.name, value);
  }
  if (!nonfinite.empty()) line["nonfinite"] = nonfinite;
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
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!line.is_object()) continue;
    const auto field = line.find("restart");
    if (field != line.end() && field->is_number_integer())
      restart = std::max(restart, field->get<int>());
  }
  return restart;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, bool goes_on) : path_(path) {
  const int flags = goes_on ? O_RDWR : O_WRONLY | O_EXCL;
  constexpr int kAlways = O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = FileDescriptor(::open(path.c_str(), flags | kAlways, 0644));
  if (!file_ && errno == ELOOP)
    throw DataError(path_ + ": is a link; links are not followed here: remove it");
  if (!file_) throw_errno("metrics: cannot create", path_);
  if (::fstat(file_.get(), &facts_) != 0) throw_errno("metrics: cannot look at", path_);
  if (!S_ISREG(facts_.st_mode)) throw DataError(path_ + ": is not a regular file: remove it");
  if (!goes_on) return;
  const std::string tail = tail_of(file_);
  restarts_ = last_restart(tail) + 1;
  // A disk that was full may have left half a line, which must not spoil ours.
  if (!tail.empty() && tail.back() != '\n') waiting_ = "\n";
}

// What is written into a file without a name is lost without a word.
void MetricsLog::check_name() const {
  struct stat named {};
  if (::lstat(path_.c_str(), &named) == 0) {
    if (named.st_dev == facts_.st_dev && named.st_ino == facts_.st_ino) return;
    errno = ESTALE;
  } else if (errno != ENOENT && errno != ENOTDIR) {
    return;  // as while a server is away
  }
  throw_errno(
      "metrics: the run's folder or this file was removed, renamed or replaced during the run:",
      path_);
}

void MetricsLog::append(const MetricRecord& record) {
  check_name();
  const bool waited = waiting_.size() > 1;
  waiting_ += json_line(record, utc_now()) + "\n";
  const int error = write_waiting();
  if (error == 0 || waited) return;
  warning_ = concat(path_, ": ", std::generic_category().message(error),
      "; training continues, and the lines wait in memory until the disk takes them");
}

void MetricsLog::flush() {
  check_name();
  errno = write_waiting();
  if (errno != 0) throw_errno("metrics: cannot write", path_);
}

std::string MetricsLog::take_warning() { return std::exchange(warning_, {}); }

int MetricsLog::write_waiting() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(file_.get(), waiting_.data(), waiting_.size());
    if (written > 0) {
      waiting_.erase(0, static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

}  // namespace lockstep
