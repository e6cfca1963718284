#pragma once

#include <vector>

namespace lockstep::bench {

/// Says who used the cores over a time.
struct CpuUse {
  double seconds = 0;      ///< that passed
  double own_cpu = 0;      ///< CPU seconds of this process and of the children it has waited for
  double other_cpu = 0;    ///< CPU seconds of all others, a hypervisor's other guests included
  double other_share = 0;  ///< other_cpu / (seconds * cores); NaN where the system does not tell
};

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
  double start_ = 0;  // seconds on the monotonic clock
  double busy_ = 0;   // CPU seconds of the cores; NaN: not known
  double own_ = 0;
};

}  // namespace lockstep::bench
