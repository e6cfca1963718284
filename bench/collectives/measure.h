#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "bench/collectives/sweep.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::bench {

/// A collective of a group with float32 tensors to do it on; the root is rank 0.
///
///     const Operands operands(Collective::kAllReduce, world, 1 << 20, true);
///     operands.check();
///     operands.run();
class Operands {
 public:
  /// Makes the tensors of a message of this many bytes: a collective where they are in the group's
  /// memory.
  Operands(Collective collective, ProcessGroup group, std::int64_t bytes, bool group_memory);

  /// Does the collective once, to its end.
  void run() const;

  /// Does it on small whole numbers, whose sums float32 holds exactly, and throws Error that names
  /// the first element which is not what it must be. Leaves zeros.
  void check() const;

 private:
  std::int64_t elements() const;  ///< of the message
  std::int64_t piece() const { return elements() / group_.size(); }
  const torch::Tensor& result() const { return output_.defined() ? output_ : input_; }
  float expected(std::int64_t index) const;
  void clear() const;

  Collective collective_;
  ProcessGroup group_;
  torch::Tensor input_;
  torch::Tensor output_;  ///< undefined where the collective works in place
};

/// Measures a sweep over the groups of one world, as every rank of it calls this: a line for each
/// collective, size and group, the same on all ranks. `tell` has each line as soon as it is there.
///
/// A repeat is some calls in a row after a barrier, as many as take about two milliseconds; its
/// value is the time of one call of the slowest rank. Repeats of the groups, and of copying as many
/// bytes within memory, take turns, so that whatever disturbs the machine meets all alike. Throws
/// Error for a wrong result, and what collectives throw.
std::vector<SweepLine> measure(const Sweep& sweep, const std::vector<ProcessGroup>& groups,
    const std::function<void(const SweepLine&)>& tell = {});

}  // namespace lockstep::bench
