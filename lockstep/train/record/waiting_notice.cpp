#include "lockstep/train/record/waiting_notice.h"

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <utility>

#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep {

WaitingNotice::WaitingNotice(std::string what, std::chrono::milliseconds interval)
    : what_(std::move(what)), interval_(interval) {
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { tell(stop); });
  } catch (const std::system_error&) {
    // Where no thread can be had, what waits is worth more than the talk about it.
  }
}

void WaitingNotice::tell(const std::stop_token& stop) const {
  const Stopwatch watch;
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (true) {
    never.wait_for(lock, stop, interval_, [] { return false; });
    if (stop.stop_requested()) return;
    std::fprintf(
        stderr, "%s: %s so far\n", what_.c_str(), format_duration(watch.seconds()).c_str());
    ++lines_;
  }
}

}  // namespace lockstep
