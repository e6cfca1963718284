#pragma once

#include <exception>

namespace lockstep {

/// Lists what a program of ours says by its exit code; 128+n stands for the signal n.
enum class ExitCode {
  kDone = 0,
  kUnclassified = 1,
  kUsage = 2,        ///< bad flags or configuration; a retry is useless
  kData = 3,         ///< bad data or snapshot; a retry is useless
  kEnvironment = 4,  ///< port, disk, device, permission; retry after repair
  kPeersLost = 5,    ///< peers died or could not be found; retry
  kDiverged = 6,     ///< NaN or Inf beyond the policy
  kStopped = 75,     ///< stopped by a signal with a complete snapshot; run again to continue
};

/// Gives the exit code that stands for an exception.
ExitCode exit_code_of(const std::exception& error);

/// Runs the body of a program: prints what it throws as `PROGRAM: MESSAGE` on stderr, returns the
/// exit code.
int run_program(const char* program, int (*body)(int, char**), int argc, char** argv);

}  // namespace lockstep
