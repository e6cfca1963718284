#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {

/// Measures what the layers of a whole model cost on a batch, in the modes of the calling thread
/// and of the model's modules. A net that is no chain is one layer, `net`.
///
/// The model's parameters must have no gradients yet, and no hooks: a copy's have none.
std::vector<ChainLayer> chain_costs(const nn::Model& model, const torch::Tensor& images);

}  // namespace lockstep
