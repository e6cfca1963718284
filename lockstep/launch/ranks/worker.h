#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/output/failure_report.h"
#include "lockstep/launch/output/worker_output.h"
#include "lockstep/launch/ranks/worker_environment.h"
#include "lockstep/liveness/spare.h"

namespace lockstep::launch {

/// A process that has the program loaded and waits for a rank (liveness/spare.h).
struct Spare {
  ChildProcess process;
  FileDescriptor pipe;  ///< in which its rank's variables go

  /// Makes it a rank: it goes on with these variables.
  void become(const Variables& variables) &&;
};

/// The spares of a node's ranks, one for each at most. They belong to no attempt, and so outlive
/// the one in which they were started.
///
/// Note [Spares]
/// A restart then need not execute the program and load its libraries, which for LibTorch takes
/// longer than all else. A spare has the streams, the cores and the signals of its local rank, and
/// what it writes before it is needed stays in its pipes, as far as these hold it. Its rank's
/// variables come by one more pipe.
class Spares {
 public:
  /// Starts one for each local rank that has none. `mark` is that of the attempts' guardians, which
  /// take over the ones that become ranks.
  void fill(const LaunchOptions& options, const std::string& mark);

  /// Takes the spare of a local rank; none if there is none, or it has ended.
  std::optional<Spare> take(int local_rank);

  /// Returns the ids of all processes that belong to it.
  std::vector<pid_t> pids() const;

 private:
  std::optional<Guardian> guardian_;
  std::map<int, Spare> spares_;  // by local rank
};

/// One process of a group, a rank or the command of a host: its output and how it ended.
struct Worker {
  int number;  ///< the rank, or the host
  WorkerOutput output;
  std::string log = {};          ///< the file with its output; may be empty
  std::string message_log = {};  ///< the file for its message alone; empty: that is in the other
  std::optional<ErrorFile> error_file = {};
  FileDescriptor input = {};  ///< closed when the launcher is gone; may be none
  std::optional<ChildProcess> process = {};
  std::optional<ExitStatus> status = {};   ///< set when its end was seen
  std::optional<ExitStatus> verdict = {};  ///< by the launcher, in place of how it ended

  /// Returns what it said of its end; may be empty.
  std::string message() const { return error_file ? error_file->message() : ""; }

  /// Keeps that in its log; forgets the name of a log that cannot be written.
  void log_message();
};

/// Returns what the process of a local rank is started with, but for its environment and guardian.
/// Throws InvalidArgument for a program that cannot be executed.
ChildOptions rank_process(const LaunchOptions& options, int local_rank);

/// Starts all ranks of this node, of spares where there are some; none is left if one cannot be
/// started. Logs are begun anew in the first attempt and continued in later ones.
std::vector<Worker> start_ranks(
    const LaunchOptions& options, RankPlan plan, const Guardian& guardian, Spares& spares);

}  // namespace lockstep::launch
