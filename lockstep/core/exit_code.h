#pragma once

#include <exception>

#include "lockstep/core/error.h"

namespace lockstep {

/// The exit codes of our programs; 128+n stands for the signal n.
enum class ExitCode {
  kDone = 0,
  kUnclassified = 1,
  kUsage = 2,        ///< bad flags or configuration; retrying is useless
  kData = 3,         ///< bad data or snapshot; retrying is useless
  kEnvironment = 4,  ///< port, disk, memory, permission; retry after a repair
  kPeersLost = 5,    ///< peers died or could not be found; retry
  kDiverged = 6,     ///< NaN or Inf beyond the policy
  kStopped = 75,     ///< stopped by a signal with a complete snapshot; run again to continue
};

/// Returns the exit code that stands for an exception.
ExitCode exit_code_of(const std::exception& error);

/// Ends the program by a signal after a clean-up: run_program() raises the signal again.
class StoppedError : public Error {
 public:
  explicit StoppedError(int signal) : Error("stopped by a signal"), signal_(signal) {}

  int signal() const { return signal_; }

 private:
  int signal_;
};

/// Runs the body of a program and returns its exit code; what it throws is reported as
/// `PROGRAM: MESSAGE` on stderr, or by the launcher that started it; a StoppedError ends the
/// program by its signal. First it calls repair_inherited_state().
int run_program(const char* program, int (*body)(int, char**), int argc, char** argv);

}  // namespace lockstep
