#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/core/cpu_share.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/signal_reader.h"

namespace lockstep::bench {

/// The command of a sample's child process.
struct SampleCommand {
  std::string program;  ///< path
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< all of it, as NAME=VALUE
  std::vector<int> cpus;                 ///< empty: as ours
  std::filesystem::path log;             ///< takes its output and errors; begun anew
  double limit_seconds = 0;
};

/// The end of a sample's child process.
struct SampleEnd {
  launch::ExitStatus status;
  double seconds = 0;
  bool out_of_time = false;             ///< it was killed at its limit
  int signal = 0;                       ///< that came to us, for which it was killed; 0: none
  OomKills oom;                         ///< how many more there were since it began
  std::vector<std::string> last_lines;  ///< of its output
};

/// Runs a child process in a process group of its own until it ends, its time is over or a signal
/// comes; then kills and waits for all that descends from it, so that nothing disturbs the next.
///
/// Call it while a launch::Subreaper lives: else what left the group is not found. Throws
/// std::system_error when it cannot be started or its log not be opened.
SampleEnd run_sample(const SampleCommand& command, const launch::SignalReader& signals);

/// Says in one line why a sample failed, with the last line of its output: `exited with code 3 (bad
/// data or snapshot): no such file`. Empty if it did not.
std::string failure_reason(const SampleEnd& end, double limit_seconds);

}  // namespace lockstep::bench
