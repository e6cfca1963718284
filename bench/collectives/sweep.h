#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep::bench {

/// The collectives, backends and sizes to measure; sizes grow by a factor.
struct Sweep {
  std::vector<Collective> collectives = {Collective::kAllReduce};
  std::vector<std::string> backends = {"shm", "gloo"};
  /// Tensors in the memory that ProcessGroup::empty() gives, as the buckets of
  /// DistributedDataParallel; else such as anyone makes.
  bool group_memory = true;
  std::int64_t min_bytes = 1024;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  int factor = 4;       ///< from one size to the next
  int warmup = 3;       ///< repeats that are not counted
  int iterations = 10;  ///< repeats that are
  bool check = true;    ///< the result of each size once, before it is timed
};

/// Throws InvalidArgument that names the flag for what cannot be measured by this many ranks.
void check_sweep(const Sweep& sweep, int ranks);

/// Returns the sizes of the message in bytes, each rounded down to whole float32 numbers for every
/// rank.
std::vector<std::int64_t> message_sizes(const Sweep& sweep, int ranks);

}  // namespace lockstep::bench
