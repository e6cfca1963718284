#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/launch/cgroup.h"
#include "lockstep/launch/exit_status.h"

namespace lockstep::launch {

/// Says all that is known of the worker that failed first.
struct Failure {
  int rank = 0;
  int world_size = 1;
  int nodes = 1;
  std::string host;
  pid_t pid = 0;
  ExitStatus status;
  OomKills oom;                         ///< how many more there were since the run began
  std::string message;                  ///< from its error file
  std::vector<std::string> last_lines;  ///< of its output
  std::string log;                      ///< where all of it is; may be empty
};

/// Says in one sentence what happened: `rank 1 of 4 (host box, pid 17) was killed by SIGKILL
/// (signal 9)`.
std::string failure_headline(const Failure& failure);

/// Explains it over several lines, each begun by `lockstep: ` or, for the worker's own words, by `
/// | `. The first says what follows from it: `the run failed`, `restart 1 of 3`.
std::string failure_report(const Failure& failure, const std::string& consequence);

}  // namespace lockstep::launch
