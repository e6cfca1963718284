#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace lockstep::nn {

using OptimizerGroups = std::vector<torch::optim::OptimizerParamGroup>;
using OptimizerStates =
    ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

/// The arguments of one call of a fused kernel, which takes parameters of one device and one type
/// only; the lists run in parallel.
struct KernelArguments {
  std::vector<torch::Tensor> parameters, gradients, moments, second_moments, largest_moments, steps;
};

using KernelCalls = std::vector<KernelArguments>;

/// Says whether LibTorch's kernels can take every parameter that has a gradient.
bool are_fusable(const OptimizerGroups& groups);

/// Adds a parameter and its gradient to the call that can take it, made where there is none.
KernelArguments& add_parameter(KernelCalls& calls, const torch::Tensor& parameter);

/// Returns a dense tensor's elements in the order of its memory. LibTorch's Adam would copy every
/// tensor that is not contiguous, such as a channels-last weight, only to walk the original.
torch::Tensor flat(const torch::Tensor& tensor);

/// Returns `skip` where the call computes; nothing if it is undefined: the step is made.
std::optional<torch::Tensor> skip_for(const KernelArguments& call, const torch::Tensor& skip);

/// Computes the loss that a caller of step() asks for; undefined without a closure.
torch::Tensor closure_loss(const torch::optim::Optimizer::LossClosure& closure);

}  // namespace lockstep::nn
