#include "lockstep/train/task/make_task.h"

#include "lockstep/train/task/classification.h"

namespace lockstep {

TaskPointer make_task(const TrainOptions& options, const SampleForm& /*form*/) {
  return std::make_shared<Classification>(options.loss, options.smoothing);
}

}  // namespace lockstep
