#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/gradient_sync.h"
#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {

/// The means to keep the replicas of a stage, or of a whole pipeline, equal; nothing with a group
/// of one.
///
/// A step runs backward once for every micro-batch, so gradients are reduced once, at the end of
/// the step. Stages end at different times: those that are done reduce while the others compute.
class StageReplicas {
 public:
  /// Gives every rank rank 0's parameters and buffers. A collective.
  StageReplicas(const Layers& layers, ProcessGroup group);

  /// Copies rank 0's buffers to all, unless the step adds to the gradients of one before it. A
  /// collective then.
  void before_step();
  /// Averages the gradients, unless they accumulate. A collective then.
  void after_step();

  struct Restore {
    bool before;
    void operator()(bool* accumulates) const { *accumulates = before; }
  };
  using Accumulation = std::unique_ptr<bool, Restore>;

  /// Lets gradients accumulate on each replica for as long as the returned value exists, which must
  /// not outlive the replicas.
  [[nodiscard]] Accumulation no_sync() {
    return {&accumulates_, Restore{std::exchange(accumulates_, true)}};
  }

 private:
  Layers layers_;
  std::optional<GradientSync> sync_;
  bool accumulates_ = false;
};

}  // namespace lockstep
