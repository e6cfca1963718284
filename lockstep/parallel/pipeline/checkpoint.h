#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {

/// Computes a layer without keeping what its backward needs: backward computes it once more.
/// Between the two only the layer's input is kept, for the price of a second forward.
///
/// The second forward has the first one's modes, autocast and random numbers, and leaves running
/// statistics and batch counters alone, so all gradients are what they would be without. Values are
/// of the forms of ValueForm. Without gradients the layer is computed as it is.
///
/// Throws Error in backward if the input was changed in place meanwhile, is differentiated twice
/// (create_graph), by torch::autograd::grad() or in a replica of DataParallel; and at once if the
/// layer changes a buffer of its own, which a second forward would change again, or if a rule for
/// batch norms is in force, such as SyncBatchNormScope.
///
///     for (auto& layer : layers) value = lockstep::checkpoint(layer.value(), std::move(value));
torch::nn::AnyValue checkpoint(torch::nn::AnyModule layer, torch::nn::AnyValue input);

/// Does the same with a layer that takes and returns one tensor.
///
///     auto hidden = lockstep::checkpoint(torch::nn::AnyModule(block), images);
torch::Tensor checkpoint(torch::nn::AnyModule layer, const torch::Tensor& input);

/// Throws InvalidArgument if layers cannot be computed again one by one: Stash and Pop pass a value
/// on beside the chain.
void check_can_be_computed_again(const Layers& layers);

}  // namespace lockstep
