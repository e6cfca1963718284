#include "lockstep/record/event_log.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/open_directory.h"

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

}  // namespace

std::vector<EventScalar> scalars_of(const MetricRecord& record) {
  std::vector<EventScalar> scalars;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) scalars.push_back({record.split + "/" + name, *value});
  };
  for (const ScoreName& score : kScores) add(score.name, record.scores.*score.value);
  for (const RateName& rate : kRates) add(rate.name, record.*rate.value);
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

}  // namespace lockstep
