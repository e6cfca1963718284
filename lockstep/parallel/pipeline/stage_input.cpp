#include "lockstep/parallel/pipeline/stage_input.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {
namespace {

using torch::autograd::variable_list;

// Gives the same memory as a tensor of its own: no view in autograd's eyes, though changes in place
// are counted together.
struct Enter : torch::autograd::Function<Enter> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& leaf) {
    torch::Tensor seen = leaf.variable_data();
    torch::autograd::impl::set_version_counter(seen, torch::autograd::impl::version_counter(leaf));
    return seen;
  }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list gradients) {
    return gradients;
  }
};

}  // namespace

StageInput::StageInput(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  for (const torch::Tensor& tensor : tensors) {
    torch::Tensor leaf = tensor.detach().to(device);
    leaf.requires_grad_(tensor.requires_grad() && torch::GradMode::is_enabled());
    seen.push_back(leaf.requires_grad() ? Enter::apply(leaf) : leaf);
    leaves.push_back(std::move(leaf));
  }
}

std::vector<torch::Tensor> StageInput::wanting() const {
  std::vector<torch::Tensor> wanting;
  for (const torch::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanting.push_back(leaf);
  }
  return wanting;
}

std::vector<torch::Tensor> StageInput::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

}  // namespace lockstep
