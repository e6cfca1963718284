#include "lockstep/comm/host/backoff.h"

#include <sys/resource.h>

namespace lockstep::host {
namespace {

using Clock = std::chrono::steady_clock;

// Time slices take some milliseconds. The kernel's own threads come more rarely.
constexpr auto kSlice = std::chrono::milliseconds(15);
constexpr long kFewSwitches = 2;

long involuntary_switches() {
  rusage use{};
  ::getrusage(RUSAGE_THREAD, &use);
  return use.ru_nivcsw;
}

/// Counts over spans of time how often the core was taken from this thread.
class SwitchCounter {
 public:
  bool is_contested() {
    const long switches = involuntary_switches() - begin_switches_;
    const auto now = Clock::now();
    const bool are_many = switches >= kFewSwitches && switches * kSlice > now - begin_;
    if (are_many) is_contested_ = true;
    if (now - begin_ < kFewSwitches * kSlice) return is_contested_;
    is_contested_ = are_many;
    begin_ = now;
    begin_switches_ += switches;
    return is_contested_;
  }

 private:
  Clock::time_point begin_ = Clock::now();
  long begin_switches_ = involuntary_switches();
  bool is_contested_ = false;
};

}  // namespace

bool core_is_contested() {
  thread_local SwitchCounter counter;
  return counter.is_contested();
}

}  // namespace lockstep::host
