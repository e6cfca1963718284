#pragma once

#include <vector>

#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {

/// Measures all costs of each layer on a sample, each computed as a stage of its own: forward,
/// backward at once, and backward in two parts, by the calls of Note [Backward in two parts].
///
/// Each time is the median of `passes` passes through the whole chain: what a step mostly takes,
/// with caches and memory as a step finds them, which the shortest time would leave out. Runs
/// the chain forward 1 + 2 `passes` times, and backward 2 `passes` times; needs memory for a step
/// and for a copy of the parameters. The layers run in the modes that they have, as a frozen batch
/// norm stays in evaluation. A parameter that layers share is the first one's.
///
/// Hooks on parameters are called, such as those of DistributedDataParallel: measure before they
/// are attached, or a clone. Other conditions as costs_by_time.
std::vector<LayerCosts> layer_costs(const Layers& layers, const ChainInput& sample, int passes);

/// Measures the seconds that forward and backward of each layer take on a sample: of `passes`
/// passes the shortest, which other work disturbed least.
///
/// The sample is one micro-batch, on the layers' device; each layer gets what the one before gave,
/// in a form of ValueForm. The layers run in training mode. Afterwards parameters, buffers, modes,
/// random numbers and the sample are as before, also if a layer throws. Throws InvalidArgument if a
/// parameter has a gradient already, if a layer gives no tensors, or if passes is below 1.
std::vector<double> costs_by_time(const Layers& layers, const ChainInput& sample, int passes);

/// Measures the bytes that each layer keeps in training: its parameters, times
/// `copies_of_parameters`, and what its forward on the sample leaves allocated for backward and for
/// the next layer.
///
/// Copies are the parameter, its gradient and the optimizer's state: 2 for plain SGD, 3 with
/// momentum, 4 for Adam; 0 leaves activations alone. Conditions as costs_by_time.
std::vector<double> costs_by_size(
    const Layers& layers, const ChainInput& sample, double copies_of_parameters);

/// Cuts the layers into stages by their times: the layers per stage.
///
///     auto balance = balance_by_time(layers, images, 2, 3);
std::vector<int> balance_by_time(
    const Layers& layers, const ChainInput& sample, int stages, int passes);

/// Cuts the layers into stages by their sizes: the layers per stage.
std::vector<int> balance_by_size(
    const Layers& layers, const ChainInput& sample, int stages, double copies_of_parameters);

}  // namespace lockstep
