#include "lockstep/comm/host/alarm.h"

#include <cerrno>
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::host {

bool Alarm::sleep(std::chrono::milliseconds longest) {
  const auto nanoseconds = std::chrono::nanoseconds(longest).count();
  const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const long ended = ::syscall(SYS_futex, &is_set_, FUTEX_WAIT, 1, &time, nullptr, 0);
  return ended == 0 || errno != ETIMEDOUT;
}

void Alarm::wake() {
  if (is_set_.exchange(0) != 0)
    ::syscall(SYS_futex, &is_set_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::host
