#pragma once

#include <cstdint>

namespace lockstep {

/// Is what a rank trains on in an epoch, and how many of its batches make one optimizer step.
struct EpochBatches {
  std::int64_t samples = 0;  ///< of this rank; the last batch may have fewer than the others
  std::int64_t batch_size = 1;
  std::int64_t batches = 0;  ///< that are trained on, which may be fewer than there are
  std::int64_t batches_a_step = 1;
};

/// Says what part of an optimizer step a batch is.
struct StepPart {
  double share = 1;  ///< of the samples that this rank trains on in the step
  bool is_first = true;
  bool is_last = true;

  friend bool operator==(const StepPart&, const StepPart&) = default;
};

/// Counts the optimizer steps: the last one takes the batches that are left.
std::int64_t steps_of(const EpochBatches& epoch);

/// Gives the part of batch `number`, counted from 0.
///
/// The mean losses of a step's batches, each times its share, add up to the mean over all samples:
/// what one batch of them all would give.
StepPart step_part(const EpochBatches& epoch, std::int64_t number);

}  // namespace lockstep
