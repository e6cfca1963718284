#include "lockstep/nn/fused/gradients_with_graph.h"

#include <utility>

#include <torch/csrc/autograd/autograd.h>

namespace lockstep::nn::fused {

using torch::autograd::variable_list;

variable_list gradients_with_graph(const torch::autograd::AutogradContext& context,
    variable_list inputs, c10::function_ref<at::Tensor(const variable_list& inputs)> output,
    const at::Tensor& output_gradient) {
  variable_list wanted;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = inputs[i].view_as(inputs[i]);  // two inputs may be one tensor
    if (context.needs_input_grad(i)) wanted.push_back(inputs[i]);
  }
  auto found = torch::autograd::grad({output(inputs)}, wanted, {output_gradient},
      /*retain_graph=*/true, /*create_graph=*/true);
  variable_list results(inputs.size());
  auto next = found.begin();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (context.needs_input_grad(i)) results[i] = std::move(*next++);
  return results;
}

}  // namespace lockstep::nn::fused
