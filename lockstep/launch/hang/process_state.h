#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace lockstep::launch {

/// Finds the letter of a state in the text of a /proc/PID/stat; '?' where there is none. The
/// process's name before it may hold anything.
char state_in(std::string_view stat);

/// Finds a line's value in the text of a /proc/PID/status; empty where there is none.
std::string_view status_value(std::string_view status, std::string_view name);

/// Says whether a set of signals, as /proc/PID/status has it, holds this one.
bool holds_signal(std::string_view mask, int signal);

/// A process as /proc shows it.
class ProcessState {
 public:
  explicit ProcessState(pid_t process) : process_(process) {}

  /// Returns the state's letter: R, S, D, T (stopped), Z (ended), ...; '?' when it has gone.
  char letter() const;

  /// Says whether a debugger or tracer is attached.
  bool is_traced() const;

  /// Says whether the process has a handler for this signal.
  bool handles(int signal) const;

  /// Returns its threads, the first of which is the main one.
  std::vector<pid_t> threads() const;

  /// Returns in one line what the kernel tells of a thread: its state, the function of the kernel
  /// in which it waits, the system call.
  std::string thread_text(pid_t thread) const;

 private:
  pid_t process_;
};

}  // namespace lockstep::launch
