#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Options of a DistributedSampler: the order of the samples, and what happens when they cannot be
/// dealt out evenly.
struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;  ///< leave out the tail that does not go round
  bool padding = true;  ///< otherwise repeat samples from the front; false, for evaluation: ranks
                        ///< may differ by 1
};

/// The share of each rank in a data set, by the rule of PyTorch's class of this name.
///
/// A pure function of seed, epoch and position: every rank must pass the same ones. Sample k of the
/// epoch's order goes to rank k modulo the world size.
///
///     lockstep::DistributedSampler sampler(digits.size(), world, {.shuffle = true});
///     for (auto& batch : lockstep::Loader(digits, sampler.epoch(epoch), 64)) ...
class DistributedSampler {
 public:
  DistributedSampler(
      std::int64_t size, const ProcessGroup& world, const DistributedSamplerOptions& options = {})
      : DistributedSampler(size, world.rank(), world.size(), options) {}

  /// Takes the rank and the world size explicitly; a rank outside of the world is an
  /// InvalidArgument.
  DistributedSampler(
      std::int64_t size, int rank, int world_size, const DistributedSamplerOptions& options = {});

  /// Returns this rank's indices in the order of an epoch, which is 0 or more.
  ///
  /// `first_position` counts the samples that all ranks together have consumed in this epoch
  /// already: what is left is dealt out among the ranks of today, as the uninterrupted run would
  /// have consumed it, however many ranks that had.
  std::vector<std::int64_t> epoch(std::int64_t epoch, std::int64_t first_position = 0) const;

  /// Counts the indices that epoch() gives to this rank.
  std::int64_t share(std::int64_t first_position = 0) const;

 private:
  std::vector<std::int64_t> order(std::int64_t epoch) const;

  std::int64_t size_;
  std::int64_t rank_;
  std::int64_t world_size_;
  DistributedSamplerOptions options_;
};

}  // namespace lockstep
