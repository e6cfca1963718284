#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "lockstep/nn/models/layers.h"

namespace lockstep::nn {

/// Tensors by their names, in order.
using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

/// Returns the parameters and buffers of a module with Python's names, in the order of Python's
/// `state_dict()`: of each module its parameters, its buffers, then its children's. The tensors are
/// the module's own.
NamedTensors named_state(const torch::nn::Module& module);

/// The same for a chain of layers, or a part of one, under the names that the model gives them.
NamedTensors named_state(const Layers& layers);

/// Returns whether a tensor has neither infinite numbers nor NaN.
bool is_finite(const torch::Tensor& tensor);

/// Returns for each device of the tensors, as a scalar there, whether one of them has an infinite
/// number or NaN. Waits for no device.
std::vector<torch::Tensor> overflows_of(const std::vector<torch::Tensor>& tensors);

}  // namespace lockstep::nn
