#include "lockstep/train/record/waiting_notice.h"

#include <condition_variable>
#include <cstdio>
#include <system_error>

#include "lockstep/core/text.h"

namespace lockstep {

WaitingNotice::WaitingNotice(std::chrono::milliseconds interval) : interval_(interval) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error&) {
    // Where no thread can be had, what waits is worth more than the talk about it.
  }
}

void WaitingNotice::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  since_.restart();
}

int WaitingNotice::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

void WaitingNotice::watch(const std::stop_token& stop) {
  std::condition_variable_any never;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    never.wait_for(lock, stop, interval_, [] { return false; });
    if (!stop.stop_requested()) tell();
  }
}

void WaitingNotice::tell() {
  const double seconds = since_.seconds();
  if (what_.empty() || seconds < std::chrono::duration<double>(interval_).count()) return;
  std::fprintf(stderr, "%s: %s so far\n", what_.c_str(), format_duration(seconds).c_str());
  ++lines_;
}

}  // namespace lockstep
