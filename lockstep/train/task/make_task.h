#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/samples.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/sample_form.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// Returns the task that the options name; else the one that the targets of a set say. A whole
/// number is a classification, a row of them are tokens, a map of them is a segmentation, a row of
/// bytes or truth values are labels, real numbers are a regression, and no target at all is a
/// reconstruction.
///
/// Throws InvalidArgument where a set has several targets, or those of another task.
TaskKind task_kind(const TrainOptions& options, const std::vector<data::TensorForm>& targets);

/// Returns the name of the loss of a task: the options', or the task's usual one.
std::string loss_name(const TrainOptions& options, TaskKind kind);

/// Takes out of the options a task and a loss that say what a set with these targets says by
/// itself: so a resume is the same training with them and without. Throws as task_kind() and
/// loss_name() do.
void forget_usual_words(TrainOptions& options, const std::vector<data::TensorForm>& targets);

/// Returns how many numbers a net of our own has to give for a set: a score for each class, or as
/// many numbers as a target has. Throws InvalidArgument where --num-classes says fewer classes than
/// there are, is no use, or is missing.
std::int64_t task_outputs(const TrainOptions& options, const data::Samples& set);

/// Makes the options' model for samples of a form, with a plugin's task around it where the options
/// name one; see NetSettings about `is_filled_later`. Throws InvalidArgument for an unknown model
/// or task.
nn::Model make_net(
    const TrainOptions& options, const SampleForm& form, bool is_filled_later = false);

/// Returns the task of samples of a form; the model is asked for its numbers if it is a program.
///
/// Throws InvalidArgument as task_kind() does, for a loss that the task has not, with those that it
/// has, for a score to compare epochs by that it does not measure, and for flags that mean nothing
/// to it.
TaskPointer make_task(const TrainOptions& options, const SampleForm& form, nn::Model& model);

}  // namespace lockstep
