#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// The position of a training in the data, between two optimizer steps.
struct EpochPosition {
  std::int64_t epoch = 1;          ///< under way, or begins next; counted from 1
  std::int64_t samples = 0;        ///< of this epoch that all replicas together have consumed
  std::int64_t epoch_samples = 0;  ///< that this epoch takes in all; 0 before it begins

  friend bool operator==(const EpochPosition&, const EpochPosition&) = default;
};

/// The division of an epoch's samples into batches and steps.
struct EpochRule {
  std::int64_t samples = 0;                        ///< of the training set
  std::int64_t replicas = 1;                       ///< ranks that they are dealt out among
  std::int64_t batch_size = 1;                     ///< of one rank
  std::optional<std::int64_t> limit_batches = {};  ///< of one rank in an epoch
  std::int64_t batches_a_step = 1;
};

/// The samples of a rank in an epoch, and the number of its batches in one optimizer step.
struct EpochBatches {
  std::int64_t samples = 0;  ///< of this rank; the last batch may have fewer than the others
  std::int64_t batch_size = 1;
  std::int64_t batches = 0;  ///< that are trained on, which may be fewer than there are
  std::int64_t batches_a_step = 1;
};

/// The part of an optimizer step that a batch is.
struct StepPart {
  double share = 1;         ///< of the samples that this rank trains on in the step
  std::int64_t number = 0;  ///< counted from 0
  bool is_last = true;
  std::size_t turn = 0;  ///< of the task's; a step of several has one part

  friend bool operator==(const StepPart&, const StepPart&) = default;
};

/// Counts the optimizer steps: the last one takes the batches that are left.
std::int64_t steps_of(const EpochBatches& epoch);

/// Returns the part of batch `number`, counted from 0.
///
/// The mean losses of a step's batches, each times its share, add up to the mean over all samples:
/// what one batch of them all would give.
StepPart step_part(const EpochBatches& epoch, std::int64_t number);

/// Counts the samples that an epoch takes by this rule.
std::int64_t epoch_samples(const EpochRule& rule);

/// Returns what a rank has left to train on in the epoch, whatever rule the samples before were
/// dealt out by; that of a whole epoch at its start.
EpochBatches batches_left(const EpochRule& rule, const EpochPosition& position);

/// Returns the position after each rank has trained on that many more samples.
EpochPosition advanced(
    EpochPosition position, const EpochRule& rule, std::int64_t samples_of_each_rank);

/// Counts the steps of the schedule of the learning rate up to a position: those of whole epochs by
/// this rule, less those that are left of this one. So epochs end where the schedule expects them
/// to, also when the number of replicas has changed within one. If that changed how many samples
/// the epoch takes, the share of them that is consumed counts; never below 0.
std::int64_t schedule_step(const EpochRule& rule, const EpochPosition& position);

}  // namespace lockstep
