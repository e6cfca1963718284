#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/study.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/launch/child_process.h"

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

/// The paths that stand in a cell's command.
struct CellPaths {
  std::string program;          ///< of `lockstep`
  std::filesystem::path bench;  ///< the bench's folder
};

/// The output of a cell's process, and its end.
struct CellLog {
  std::filesystem::path file;
  double limit_seconds = 0;
};

/// Returns a cell's command as samples note it: with its program, where that is not `lockstep`.
std::vector<std::string> noted_command(const StudyCell& cell);

/// Makes the child process that runs a cell with the output in `run`. A program that is not there
/// is an InvalidArgument.
SampleCommand process_of(const StudyCell& cell, const CellPaths& paths,
    const std::filesystem::path& run, const CellLog& log);

/// Runs of cells that are not noted as samples: what a study does before the first.
class Trials {
 public:
  /// Runs in OUTPUT/runs/STUDY.
  Trials(const CellPaths& paths, const std::string& study);

  /// Runs a cell anew, with its output in `run`. Throws StoppedError if a signal comes meanwhile
  /// that would end us.
  SampleEnd run(const StudyCell& cell, const std::filesystem::path& run, double limit_seconds);

  std::filesystem::path log_of(const StudyCell& cell) const {
    return folder_ / (cell.id + "-trial.log");
  }
  std::filesystem::path run_of(const StudyCell& cell) const {
    return folder_ / (cell.id + "-trial");
  }

 private:
  const CellPaths& paths_;
  const std::filesystem::path folder_;
  const launch::Subreaper subreaper_;
  std::optional<launch::SignalReader> signals_;
};

}  // namespace lockstep::bench
