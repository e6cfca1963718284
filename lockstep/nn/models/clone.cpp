#include "lockstep/nn/models/clone.h"

#include <typeinfo>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {
namespace {

using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

void check_alike(bool alike, const std::string& what) {
  if (alike) return;
  throw Error(concat("clone: the module differs from what its constructor makes: ", what,
      "; clone it before it is changed"));
}

torch::Tensor own_copy(const torch::Tensor& tensor, const std::optional<at::Device>& device) {
  return device ? tensor.detach().to(*device, tensor.scalar_type(), false, true)
                : tensor.detach().clone();
}

void copy_tensors(
    const NamedTensors& source, NamedTensors target, const std::optional<at::Device>& device) {
  check_alike(source.keys() == target.keys(), "other names of parameters or buffers");
  for (const auto& item : source) {
    torch::Tensor& tensor = target[item.key()];
    tensor.set_data(own_copy(item.value(), device));
    tensor.requires_grad_(item.value().requires_grad());
  }
}

// A converter may have replaced one of our modules.
void copy_training(const torch::nn::Module& source, torch::nn::Module& target) {
  check_alike(typeid(source) == typeid(target), source.name());
  target.train(source.is_training());
  const auto from = source.children(), to = target.children();
  check_alike(from.size() == to.size(), source.name());
  for (std::size_t i = 0; i < from.size(); ++i) copy_training(*from[i], *to[i]);
}

}  // namespace

void copy_state(const torch::nn::Module& source, torch::nn::Module& target,
    const std::optional<at::Device>& device) {
  const at::NoGradGuard no_grad;
  copy_tensors(source.named_parameters(), target.named_parameters(), device);
  copy_tensors(source.named_buffers(), target.named_buffers(), device);
  copy_training(source, target);
}

}  // namespace lockstep::nn
