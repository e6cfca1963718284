#pragma once

#include <memory>
#include <optional>
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

/// Starts all workers of this node; none is left if one cannot be started.
std::vector<Worker> start_workers(
    const LaunchOptions& options, int master_port, const Guardian& guardian);

}  // namespace lockstep::launch
