#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/train/options.h"

namespace lockstep {

/// Makes the named optimizer with the learning rate for so many ranks. Adam's epsilon is 1e-7, as
/// in Keras.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, std::vector<torch::Tensor> parameters, int world_size);

}  // namespace lockstep
