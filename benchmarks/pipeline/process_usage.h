#pragma once

#include <ctime>
#include <sys/resource.h>

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

}  // namespace lockstep::benchmark
