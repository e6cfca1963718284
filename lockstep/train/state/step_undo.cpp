#include "lockstep/train/state/step_undo.h"

#include <algorithm>

#include "lockstep/train/snapshot/restore_tensors.h"

namespace lockstep {

StepUndo::StepUndo(const TrainRun& run)
    : random_(random_state(run.devices)), meter_(run.meter.sums()) {
  const auto parameters = run.replica->parameters();
  for (const auto& item : run.replica->state()) {
    const torch::Tensor& tensor = item.value();
    const auto is_it = [&](const torch::Tensor& parameter) { return parameter.is_same(tensor); };
    if (std::none_of(parameters.begin(), parameters.end(), is_it))
      buffers_.emplace_back(tensor.detach(), tensor.detach().clone());
  }
}

void StepUndo::take_back(TrainRun& run) const {
  for (const auto& [buffer, before] : buffers_) buffer.copy_(before);
  restore_random_state(random_, run.devices);
  run.meter.take_back(meter_);
}

}  // namespace lockstep
