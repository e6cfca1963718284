#pragma once

#include <cerrno>

namespace lockstep {

/// Makes a call of the operating system again as long as a signal interrupts it.
template <typename Call>
auto retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace lockstep
