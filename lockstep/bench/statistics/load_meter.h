#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/core/stopwatch.h"

namespace lockstep::bench {

/// Says who used the cores over a time.
struct CpuUse {
  double seconds = 0;      ///< that passed
  double own_cpu = 0;      ///< CPU seconds of this process and of the children it has waited for
  double other_cpu = 0;    ///< CPU seconds of all others, a hypervisor's other guests included
  double other_share = 0;  ///< other_cpu / (seconds * cores); NaN where the system does not tell
};

/// Divides the CPU seconds for which so many cores were busy into own and others'. Where the cores
/// were busy for less than half of what we ourselves computed, their counters tell nothing, as in
/// some sandboxes, and what others used is NaN.
CpuUse cpu_use(double seconds, double busy_cpu, double own_cpu, std::size_t cores);

/// Measures how much others use the cores that this process may use.
///
/// A child counts as own once it has been waited for: read when all are.
class LoadMeter {
 public:
  /// Begins to measure.
  LoadMeter();

  /// Says what was used since it was made.
  CpuUse read() const;

 private:
  std::vector<int> cpus_;
  Stopwatch watch_;
  double busy_ = 0;  // CPU seconds of the cores; NaN: not known
  double own_ = 0;
};

}  // namespace lockstep::bench
