#pragma once

#include <functional>
#include <memory>

#include <torch/nn/module.h>

namespace lockstep::data_parallel {

/// Makes another module like this one by its clone(). Throws InvalidArgument that names the module
/// or sub-module that has no clone().
std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

/// Calls a function that constructs modules, and gives the default random generator back as it was:
/// constructing draws the first values of parameters, which a replica does not need.
void without_drawing(const std::function<void()>& construct);

}  // namespace lockstep::data_parallel
