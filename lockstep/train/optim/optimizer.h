#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/train/options/optimizer_settings.h"

namespace lockstep {

/// Makes the named optimizer with the settings' own learning rate.
///
/// Where only weights decay, the parameters with one dimension or none come first, in a group of
/// their own.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, const std::vector<torch::Tensor>& parameters);

}  // namespace lockstep
