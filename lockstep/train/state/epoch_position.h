#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/optim/accumulation.h"

namespace lockstep {

/// Is where in the data a training stands, between two optimizer steps.
struct EpochPosition {
  std::int64_t epoch = 1;          ///< under way, or begins next; counted from 1
  std::int64_t samples = 0;        ///< of this epoch that all replicas together have consumed
  std::int64_t epoch_samples = 0;  ///< that this epoch takes in all; 0 before it begins

  friend bool operator==(const EpochPosition&, const EpochPosition&) = default;
};

/// Is by what the samples of an epoch are cut into batches and steps.
struct EpochRule {
  std::int64_t samples = 0;                        ///< of the training set
  std::int64_t replicas = 1;                       ///< ranks that they are dealt out among
  std::int64_t batch_size = 1;                     ///< of one rank
  std::optional<std::int64_t> limit_batches = {};  ///< of one rank in an epoch
  std::int64_t batches_a_step = 1;
};

/// Counts the samples that an epoch takes by this rule.
std::int64_t epoch_samples(const EpochRule& rule);

/// Gives what a rank has yet to train on in the epoch, whatever rule the samples before were dealt
/// out by; that of a whole epoch at its start.
EpochBatches batches_left(const EpochRule& rule, const EpochPosition& position);

/// Gives the position after each rank has trained on so many more samples.
EpochPosition advanced(
    EpochPosition position, const EpochRule& rule, std::int64_t samples_of_each_rank);

/// Counts the steps of the schedule of the learning rate up to a position: those of whole epochs by
/// this rule, less those that are left of this one. So epochs end where the schedule expects them
/// to, also when the number of replicas has changed within one.
std::int64_t schedule_step(const EpochRule& rule, const EpochPosition& position);

}  // namespace lockstep
