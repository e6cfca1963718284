#pragma once

#include <chrono>
#include <ctime>

namespace lockstep::launch {

/// A clock that never jumps, and goes on while the machine is suspended: the others do, too.
struct BootClock {
  // NOLINTBEGIN(readability-identifier-naming): the names are the standard's.
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  // NOLINTEND(readability-identifier-naming)

  static time_point now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + duration(time.tv_nsec));
  }
};

}  // namespace lockstep::launch
