#pragma once

#include <optional>
#include <string>

#include "lockstep/core/exit_code.h"

namespace lockstep::launch {

/// The end of a process: by its own exit code, or by a signal (then `signal` is not zero).
struct ExitStatus {
  int code = 0;
  int signal = 0;

  bool succeeded() const { return code == 0 && signal == 0; }

  /// Returns what a shell would: the code, or 128 + the signal.
  int result() const { return signal != 0 ? 128 + signal : code; }

  /// Returns whether it is the end of one of Lockstep's programs for this reason.
  bool is(ExitCode reason) const { return result() == static_cast<int>(reason); }

  /// Returns it in words: `exited with code 7`, `was killed by SIGKILL (signal 9)`.
  std::string text() const;
};

/// Returns the name of a signal, `SIGTERM`; of one without a name `signal 40`.
std::string signal_name(int signal);

/// Finds the signal of a name, `SIGTERM` or `TERM`; nothing when there is none.
std::optional<int> signal_number(const std::string& name);

}  // namespace lockstep::launch
