#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/output/failure_report.h"
#include "lockstep/launch/output/worker_output.h"
#include "lockstep/launch/ranks/spares.h"
#include "lockstep/launch/restart.h"

namespace lockstep::launch {

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

/// The new facts of one attempt for its ranks.
struct RankPlan : AttemptPlan {
  int master_port = 0;
  std::string progress;  ///< path of the page in which the ranks report how far they are
};

/// Returns what the process of a local rank is started with, but for its environment and guardian.
/// Throws InvalidArgument for a program that cannot be executed.
ChildOptions rank_process(const LaunchOptions& options, int local_rank);

/// Starts all ranks of this node, of spares where there are some; none is left if one cannot be
/// started. Logs are begun anew in the first attempt and continued in later ones.
std::vector<Worker> start_ranks(
    const LaunchOptions& options, const RankPlan& plan, const Guardian& guardian, Spares& spares);

}  // namespace lockstep::launch
