#pragma once

#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/ordered_dict.h>

namespace lockstep {

/// A model as a chain of layers, each called with the output of the one before. Names are for
/// messages; parameters keep the names that their modules give them.
using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// Returns the layers of a Sequential, named as its children.
Layers layers_of(const torch::nn::Sequential& net);

/// Cuts a chain into stages of `balance[i]` layers each.
///
/// Throws InvalidArgument that says what to do if the numbers do not add up to the layers or one is
/// below 1, if a layer occurs twice, or if two stages hold the same parameter.
///
///     cut(layers, {2, 3})
std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance);

/// Returns every parameter of the layers once, in order.
std::vector<torch::Tensor> parameters_of(const Layers& layers);

}  // namespace lockstep
