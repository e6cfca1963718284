#include "lockstep/nn/named_state.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

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

torch::Tensor as_real(const torch::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
}

}  // namespace

NamedTensors named_state(const torch::nn::Module& module) {
  NamedTensors state("Tensor");
  add_tensors("", module, state);
  return state;
}

NamedTensors named_state(const Layers& layers) {
  NamedTensors state("Tensor");
  for (const auto& layer : layers) {
    const torch::nn::Module& module = *layer.value().ptr();
    const bool is_named = dynamic_cast<const NamedAsInModel*>(&module) != nullptr;
    add_tensors(is_named ? "" : layer.key() + ".", module, state);
  }
  return state;
}

// The extremes of numbers with a NaN among them are NaN.
bool is_finite(const torch::Tensor& given) {
  const torch::Tensor tensor = as_real(given);
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  // Types of one byte have no kernel of their own.
  const bool is_tiny = tensor.element_size() == 1;
  const auto [least, most] =
      at::aminmax(is_tiny ? tensor.detach().to(torch::kFloat) : tensor.detach());
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

// By the largest of each, which is NaN if a NaN is among them: few kernels for many tensors.
std::vector<torch::Tensor> overflows_of(const std::vector<torch::Tensor>& tensors) {
  std::unordered_map<torch::Device, std::vector<torch::Tensor>> by_device;
  for (const torch::Tensor& given : tensors) {
    const torch::Tensor tensor = as_real(given.detach());
    if (tensor.is_floating_point() && tensor.numel() > 0)
      by_device[tensor.device()].push_back(tensor);
  }
  std::vector<torch::Tensor> overflows;
  for (const auto& [device, list] : by_device) {
    const auto largest = at::_foreach_norm(list, std::numeric_limits<double>::infinity());
    overflows.push_back(at::isfinite(at::stack(largest)).all().logical_not());
  }
  return overflows;
}

}  // namespace lockstep::nn
