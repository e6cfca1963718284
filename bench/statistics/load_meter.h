#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/stopwatch.h"

namespace lockstep::bench {

/// The use of the cores over a time.
struct CpuUse {
  double seconds = 0;      ///< that passed
  double own_cpu = 0;      ///< CPU seconds of this process and of the children it has waited for
  double other_cpu = 0;    ///< CPU seconds of all others, a hypervisor's other guests included
  double other_share = 0;  ///< other_cpu / (seconds * cores); NaN where the system does not tell
};

/// Divides the CPU seconds for which this many cores were busy into own and others'. Where the
/// cores were busy for less than half of what we ourselves computed, their counters tell nothing,
/// as in some sandboxes, and what others used is NaN.
CpuUse cpu_use(double seconds, double busy_cpu, double own_cpu, std::size_t cores);

/// A meter of how much others use the cores that this process may use.
///
/// A child counts as own once it has been waited for: read when all are.
class LoadMeter {
 public:
  /// Begins to measure.
  LoadMeter();

  /// Returns what was used since it was made.
  CpuUse read() const;

 private:
  std::vector<int> cpus_;
  Stopwatch watch_;
  double busy_ = 0;  // CPU seconds of the cores; NaN: not known
  double own_ = 0;
};

/// Adds up for how many ticks the cores did work since the system started, from the text of
/// /proc/stat. Time that a hypervisor gave to other guests counts as work, waiting for a disk does
/// not. NaN when a core has no line, or one without these numbers.
double busy_ticks(const std::string& proc_stat, const std::vector<int>& cpus);

/// Adds up for how many ticks all cores served interrupts, hardware's and the kernel's own, since
/// the system started, from the text of /proc/stat. 0 where it does not tell.
double interrupt_ticks(const std::string& proc_stat);

/// Returns the CPU seconds of it until now.
double interrupt_seconds();

/// Returns the seconds that a fixed piece of arithmetic takes on one core now, about 0.02: a slow
/// clock or a busy neighbour shows in it.
double calibrate();

/// True if there are more places than cores, so that places compete for them and a
/// comparison with fewer places is not fair.
constexpr bool oversubscribed(int places, int cores) { return places > cores; }

}  // namespace lockstep::bench
