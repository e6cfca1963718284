#pragma once

#include <torch/types.h>

#include "lockstep/nn/models/plugin.h"

namespace lockstep::nn {

/// Returns a plugin's loss of a batch, computed in the type of the scores, whatever Autocast is on.
///
/// Throws InvalidArgument with the plugin's words if its function throws, and if it returns
/// anything but one number on the scores' device that has a gradient where the scores have one. A
/// lack of memory stays what it is.
torch::Tensor loss_by(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels);

}  // namespace lockstep::nn
