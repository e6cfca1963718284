#include "lockstep/launch/exit_status.h"

#include <signal.h>
#include <string.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {

std::string ExitStatus::text() const {
  if (signal == 0) return concat("exited with code ", code);
  return concat("was killed by ", signal_name(signal), " (signal ", signal, ")");
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? concat("signal ", signal) : concat("SIG", name);
}

std::optional<int> signal_number(const std::string& name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const std::string known = signal_name(signal);
    if (name == known || "SIG" + name == known) return signal;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
