#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/error_file.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/worker_output.h"

namespace lockstep::launch {

/// Is one worker of a run: its process, its output and how it ended.
struct Worker {
  int rank;
  std::string log;  ///< the file with its output; may be empty
  ErrorFile error_file;
  WorkerOutput output;
  std::optional<ChildProcess> process;
  std::optional<ExitStatus> status;  ///< set when its end was seen
};

/// Says what is new in one life of a group.
struct LifePlan {
  int restart = 0;            ///< how many lives there were before
  std::int64_t death_ns = 0;  ///< when the last of them failed, on the monotonic clock; 0: none did
  int master_port = 0;
  std::string progress;  ///< path of the page in which the workers say how far they are
};

/// Starts all workers of this node; none is left if one cannot be started. Logs are begun anew in
/// the first life and continued in later ones.
std::vector<Worker> start_workers(
    const LaunchOptions& options, const LifePlan& plan, const Guardian& guardian);

}  // namespace lockstep::launch
