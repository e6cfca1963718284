#include "lockstep/nn/named_state.h"

#include <cmath>

#include <ATen/ops/aminmax.h>

namespace lockstep::nn {
namespace {

void add_tensors(const std::string& prefix, const torch::nn::Module& module, NamedTensors& state) {
  for (const auto& tensors :
      {module.named_parameters(/*recurse=*/false), module.named_buffers(/*recurse=*/false)}) {
    for (const auto& item : tensors) {
      if (item.value().defined()) state.insert(prefix + item.key(), item.value());
    }
  }
  for (const auto& child : module.named_children()) {
    add_tensors(prefix + child.key() + ".", *child.value(), state);
  }
}

}  // namespace

NamedTensors named_state(const torch::nn::Module& module) {
  NamedTensors state("Tensor");
  add_tensors("", module, state);
  return state;
}

NamedTensors named_state(const Layers& layers) {
  NamedTensors state("Tensor");
  for (const auto& layer : layers) add_tensors(layer.key() + ".", *layer.value().ptr(), state);
  return state;
}

// The extremes of numbers with a NaN among them are NaN.
bool is_finite(const torch::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  // Types of one byte have no kernel of their own.
  const bool is_tiny = tensor.element_size() == 1;
  const auto [least, most] =
      at::aminmax(is_tiny ? tensor.detach().to(torch::kFloat) : tensor.detach());
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

}  // namespace lockstep::nn
