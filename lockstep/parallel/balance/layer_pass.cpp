#include "lockstep/parallel/balance/layer_pass.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/autograd.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/autocast_off.h"

namespace lockstep {

LayerPass::LayerPass(std::string name, torch::nn::AnyModule layer, const torch::Tensor& input)
    : name_(std::move(name)), layer_(std::move(layer)), input_({input}, input.device()) {}

void LayerPass::forward() {
  auto output = layer_.any_forward(input_.seen.front());
  const torch::Tensor* const tensor = output.try_get<torch::Tensor>();
  check(tensor != nullptr, "balance: layer ", name_, " must return a tensor to be measured");
  output_ = *tensor;
}

torch::Tensor LayerPass::output() const {
  return output_.detach().requires_grad_(output_.requires_grad());
}

bool LayerPass::has_input_gradient() const { return has_backward() && !input_.wanting().empty(); }

bool LayerPass::has_parameter_gradients() const {
  const auto parameters = layer_.ptr()->parameters();
  const auto is_trained = [](const torch::Tensor& parameter) { return parameter.requires_grad(); };
  return has_backward() && std::ranges::any_of(parameters, is_trained);
}

void LayerPass::backward(const torch::Tensor& gradient) {
  const AutocastOff off;
  torch::autograd::backward({output_}, {gradient});
}

void LayerPass::backward_input(const torch::Tensor& gradient) {
  const AutocastOff off;
  weights_ = backward_inputs({output_}, {gradient}, input_.wanting());
}

void LayerPass::backward_weight() {
  const AutocastOff off;
  weights_.run();
}

}  // namespace lockstep
