#pragma once

#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/sample_form.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// Returns the task that the options name, on samples of this form.
///
/// Throws InvalidArgument for a loss that it has not, with those that it has, and for a score to
/// compare epochs by that it does not measure.
TaskPointer make_task(const TrainOptions& options, const SampleForm& form);

}  // namespace lockstep
