#pragma once

#include <ctime>
#include <string>
#include <sys/resource.h>

#include "lockstep/core/stopwatch.h"

namespace lockstep::benchmark {

/// Counts the CPU seconds of all threads of this process since its start.
inline double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Counts the page faults of this process since its start.
inline double page_faults() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// Measures which share of the machine's CPU time other programs used while it lives.
class MachineLoad {
 public:
  MachineLoad();

  /// Gives the share since the start, in which this process and `companions` - 1 others like it
  /// counted as own.
  double others(int companions) const;

 private:
  double busy_, own_;
  Stopwatch watch_;
};

/// Describes processor, cores, LibTorch and the settings of malloc, for a published figure.
std::string machine_description();

}  // namespace lockstep::benchmark
