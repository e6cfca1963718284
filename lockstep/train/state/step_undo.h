#pragma once

#include <utility>
#include <vector>

#include "lockstep/train/train_run.h"

namespace lockstep {

/// A copy of the state that the parts of an optimizer step change before its end: buffers, random
/// numbers, the meter. Parameters and optimizer have changed nothing until then.
class StepUndo {
 public:
  /// Remembers the run as it is before a step.
  explicit StepUndo(const TrainRun& run);

  /// Rolls back a partial step, so that the run can be saved.
  void take_back(TrainRun& run) const;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers_;  // each with a copy
  nn::NamedTensors random_;
  Meter::Sums meter_;
};

}  // namespace lockstep
