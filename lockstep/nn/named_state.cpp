#include "lockstep/nn/named_state.h"

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

}  // namespace lockstep::nn
