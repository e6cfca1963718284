#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/samples.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep {

/// The learning task: images of the form [channels, height, width], or the inputs that a set names;
/// and the number of classes.
struct Task {
  std::vector<std::int64_t> image;
  std::int64_t classes = 0;
  std::vector<data::InputForm> inputs = {};
};

/// Returns the task that a set gives a model of that many classes.
Task task_of(const data::Samples& set, std::int64_t classes);

/// Throws InvalidArgument unless the model takes as many tensors as a sample has, and the way can
/// spread them: stages hand on one.
void check_inputs(
    const TrainOptions& options, const Layout& layout, const Task& task, const nn::Model& model);

}  // namespace lockstep
