#pragma once

#include <functional>

#include <torch/arg.h>
#include <torch/types.h>

#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// The meaning of a loss function's result, so that micro-batches add up to the same.
enum class LossReduction {
  kMean,  ///< the mean over the samples: a micro-batch counts by its share of the batch
  kSum    ///< the sum over the samples
};

/// Turns scores and labels of a micro-batch into a scalar. Called in the last stage's thread.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

/// The options of Pipeline and PipelineStage, equal on all ranks.
struct PipelineOptions {
  /// How many micro-batches a batch is cut into: more make the bubble smaller, fewer make
  /// better use of a device.
  TORCH_ARG(int, chunks) = kDefaultChunks;
  /// The order of work: see ScheduleKind.
  TORCH_ARG(ScheduleKind, schedule) = ScheduleKind::k1F1B;
  /// Which activations are computed again in backward instead of kept.
  TORCH_ARG(Checkpoint, checkpoint) = Checkpoint::kNever;
  /// Lets running statistics of batch norm layers follow the whole batch, once a step. Each
  /// micro-batch is normalised by its own statistics in any case.
  TORCH_ARG(bool, deferred_batch_norm) = false;
  /// How the losses of micro-batches add up.
  TORCH_ARG(LossReduction, reduction) = LossReduction::kMean;
};

/// The times of one rank of a pipeline in its last step.
struct PipelineTiming {
  double seconds = 0;  ///< from its first action to its last
  double waited = 0;   ///< of them, waiting for other stages
};

}  // namespace lockstep
