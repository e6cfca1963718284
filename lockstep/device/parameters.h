#pragma once

#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace lockstep {

/// Returns each tensor once, in the order of their first places.
///
/// Parameters are a set, their names a list: LibTorch's `parameters()` lists tied weights once for
/// each of their names.
std::vector<torch::Tensor> distinct(const std::vector<torch::Tensor>& tensors);

/// Returns every parameter of a module once, as Python's `parameters()` does. LibTorch's optimizers
/// update a parameter that is listed twice twice; ours do not.
///
///     torch::optim::RMSprop optimizer(lockstep::parameters_of(*net), 0.01);
std::vector<torch::Tensor> parameters_of(const torch::nn::Module& module);

/// Leaves every parameter in the list of its group once. Throws InvalidArgument if one is in two
/// groups, as Python does.
void list_once(std::vector<torch::optim::OptimizerParamGroup>& groups);

}  // namespace lockstep
