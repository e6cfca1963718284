#include "lockstep/record/metrics_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

constexpr const char* kEvents = "tensorboard";

double unix_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch).count();
}

OpenDirectory events_folder(const std::string& run) {
  make_folders(run + "/" + kEvents);
  return OpenDirectory::open(run).child(kEvents);
}

std::string file_in_new_folder(const std::string& run, const char* name) {
  make_folders(run);
  return run + "/" + name;
}

}  // namespace

AppendedFile::AppendedFile(std::string verb, std::string path, bool goes_on)
    : verb_(std::move(verb)), path_(std::move(path)) {
  const int flags = goes_on ? O_RDWR : O_WRONLY | O_EXCL;
  constexpr int kAlways = O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = FileDescriptor(::open(path_.c_str(), flags | kAlways, 0644));
  if (!file_ && errno == ELOOP)
    throw DataError(path_ + ": is a link; links are not followed here: remove it");
  if (!file_) throw_errno(verb_ + ": cannot create", path_);
  if (::fstat(file_.get(), &facts_) != 0) throw_errno(verb_ + ": cannot look at", path_);
  if (!S_ISREG(facts_.st_mode)) throw DataError(path_ + ": is not a regular file: remove it");
}

std::string AppendedFile::tail(std::size_t most) const {
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  std::string text(
      static_cast<std::size_t>(std::clamp<off_t>(size, 0, static_cast<off_t>(most))), '\0');
  const off_t from = size - static_cast<off_t>(text.size());
  const ssize_t read = ::pread(file_.get(), text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return text;
}

// What is written into a file without a name is lost without a word.
void AppendedFile::check_name() const {
  struct stat named {};
  if (::lstat(path_.c_str(), &named) == 0) {
    if (named.st_dev == facts_.st_dev && named.st_ino == facts_.st_ino) return;
    errno = ESTALE;
  } else if (errno != ENOENT && errno != ENOTDIR) {
    return;  // as while a server is away
  }
  throw_errno(
      verb_ + ": the run's folder or this file was removed, renamed or replaced during the run:",
      path_);
}

void AppendedFile::append(std::string_view record) {
  check_name();
  waiting_ += record;
  const int error = write_waiting();
  if (error == 0 || std::exchange(is_late_, true)) return;
  warning_ = concat(path_, ": ", std::generic_category().message(error),
      "; training continues, and what is recorded waits in memory until the disk takes it");
}

void AppendedFile::flush() {
  check_name();
  errno = write_waiting();
  if (errno != 0) throw_errno(verb_ + ": cannot write", path_);
}

std::string AppendedFile::take_warning() { return std::exchange(warning_, {}); }

int AppendedFile::write_waiting() {
  while (!waiting_.empty()) {
    const ssize_t written = ::write(file_.get(), waiting_.data(), waiting_.size());
    if (written > 0) {
      waiting_.erase(0, static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? ENOSPC : errno;
    }
  }
  is_late_ = false;
  return 0;
}

std::vector<EventScalar> scalars_of(const MetricRecord& record) {
  std::vector<EventScalar> scalars;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) scalars.push_back({record.split + "/" + name, *value});
  };
  for (const ScoreName& score : kScores) add(score.name, record.scores.*score.value);
  for (const RateName& rate : kRates) add(rate.name, record.*rate.value);
  for (const auto& [name, value] : record.scores.more) add(name.c_str(), value);
  for (const auto& [name, value] : record.more) add(name.c_str(), value);
  return scalars;
}

void remove_events(const std::string& run) {
  const OpenDirectory folder = OpenDirectory::open(run);
  if (!folder.has(kEvents)) return;
  const OpenDirectory events = folder.child(kEvents);
  for (const std::string& name : events.names())
    if (is_event_file_name(name)) events.remove(name);
  if (events.names().empty()) folder.remove(kEvents);
}

EventLog::EventLog(const std::string& run, std::int64_t steps) {
  const OpenDirectory folder = events_folder(run);
  const std::vector<std::string> before = folder.names();
  const double now = unix_now();
  const std::string name = next_event_file_name(before, static_cast<std::int64_t>(now));
  file_.emplace("tensorboard", folder.path_of(name));
  const bool goes_on = std::ranges::any_of(before, is_event_file_name);
  write(version_event({now}));
  if (goes_on) write(restart_event({now, steps + 1}));
}

void EventLog::append(const MetricRecord& record) {
  write(scalars_event({unix_now(), record.step}, scalars_of(record)));
}

void EventLog::write(const std::string& record) {
  if (!file_) return;
  try {
    file_->append(record);
    warning_ += file_->take_warning();
  } catch (const std::system_error& error) {
    give_up(error.what());
  }
}

void EventLog::flush() {
  if (!file_) return;
  try {
    file_->flush();
  } catch (const std::system_error& error) {
    give_up(error.what());
  }
}

// metrics.jsonl has it all.
void EventLog::give_up(const std::string& reason) {
  warning_ = concat(reason,
      "; no more events are written there; lockstep report --tensorboard DIR RUN makes all of them "
      "later");
  file_.reset();
}

std::string EventLog::take_warning() { return std::exchange(warning_, {}); }

MetricsWriter::MetricsWriter(const std::string& run, const MetricsWriterOptions& options)
    : run_(run), lines_("metrics", file_in_new_folder(run, "metrics.jsonl"), options.goes_on) {
  if (options.goes_on) look_at_lines_before();
  if (options.tensorboard) events_.emplace(run, options.steps);
}

void MetricsWriter::look_at_lines_before() {
  constexpr std::size_t kTail = 1 << 16;  // holds the last lines, whose restart is the highest
  const std::string tail = lines_.tail(kTail);
  for (std::size_t begin = 0, end; (end = tail.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const auto line = nlohmann::json::parse(tail.substr(begin, end - begin), nullptr, false);
    if (!line.is_object()) continue;
    const auto restart = line.find("restart"), split = line.find("split"), step = line.find("step");
    if (restart != line.end() && restart->is_number_integer())
      restarts_ = std::max(restarts_, restart->get<int>() + 1);
    if (split != line.end() && split->is_string() && step != line.end() &&
        step->is_number_integer())
      had_.emplace(split->get<std::string>(), step->get<std::int64_t>());
  }
  // A disk that was full may have left half a line, which must not spoil ours.
  if (!tail.empty() && tail.back() != '\n') lines_.put_before("\n");
}

void MetricsWriter::append(MetricRecord record) {
  record.restart = restarts_;
  lines_.append(json_line(record, utc_now()) + "\n");
  if (events_) events_->append(record);
}

void MetricsWriter::flush() {
  if (events_) events_->flush();
  lines_.flush();
}

std::string MetricsWriter::take_warning() {
  std::string warning = lines_.take_warning();
  return warning.empty() && events_ ? events_->take_warning() : warning;
}

void MetricsWriter::finish(const RunSummary& summary) const {
  replace_file(run_ + "/summary.json", to_json(summary) + "\n");
}

}  // namespace lockstep
