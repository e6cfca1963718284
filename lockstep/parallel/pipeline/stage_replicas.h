#pragma once

#include <optional>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/gradient_sync.h"
#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {

/// Keeps the replicas of a stage, or of a whole pipeline, alike; with a group of one it does
/// nothing.
///
/// A step runs backward once for every micro-batch, so gradients are not reduced while they arrive
/// but once, at the end of the step. Stages end at different times: the ones that are done reduce
/// while the others still compute.
class StageReplicas {
 public:
  /// Gives every rank rank 0's parameters and buffers. A collective.
  StageReplicas(const Layers& layers, ProcessGroup group);

  /// Lets the buffers follow rank 0. A collective.
  void before_step();
  /// Averages the gradients. A collective.
  void after_step();

 private:
  std::optional<GradientSync> sync_;
};

}  // namespace lockstep
