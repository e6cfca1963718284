#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/custom_function.h>

namespace lockstep::nn::fused {

/// Returns the gradients of an output by those inputs of a function that need one, undefined for
/// the others: by autograd, in a graph that can be differentiated again. The output is computed
/// once more, by LibTorch. For backward functions that are called with create_graph.
torch::autograd::variable_list gradients_with_graph(const torch::autograd::AutogradContext& context,
    torch::autograd::variable_list inputs,
    c10::function_ref<at::Tensor(const torch::autograd::variable_list& inputs)> output,
    const at::Tensor& output_gradient);

}  // namespace lockstep::nn::fused
