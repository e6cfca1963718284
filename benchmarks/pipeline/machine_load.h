#pragma once

#include <string>

#include "lockstep/core/stopwatch.h"

namespace lockstep::benchmark {

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
