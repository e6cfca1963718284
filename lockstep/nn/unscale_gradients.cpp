#include "lockstep/nn/unscale_gradients.h"

#include <map>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"

namespace lockstep::nn {
namespace {

// The kernel takes tensors of one device and one type at a time.
using Kind = std::pair<std::string, torch::ScalarType>;
using GradientsByKind = std::map<Kind, std::vector<torch::Tensor>>;

torch::Tensor dense_part(const torch::Tensor& parameter) {
  torch::Tensor gradient = parameter.grad();
  if (!gradient.is_sparse()) return gradient;
  if (gradient.scalar_type() == torch::kHalf) {
    gradient = gradient.coalesce();
    parameter.mutable_grad() = gradient;
  }
  return gradient._values();
}

GradientsByKind gradients_of(const std::vector<torch::Tensor>& parameters) {
  GradientsByKind gradients;
  for (const torch::Tensor& parameter : distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    torch::Tensor dense = dense_part(parameter);
    gradients[{dense.device().str(), dense.scalar_type()}].push_back(std::move(dense));
  }
  return gradients;
}

// The kernel's factor and its finding, on one device.
struct Scalars {
  torch::Tensor factor, found;
};

Scalars scalars_on(const torch::Device& device, const Scalars& given) {
  if (device == given.found.device()) return given;
  const auto options = at::TensorOptions(torch::kFloat).device(device);
  // A number goes to a device with the kernel that fills it: a copy would make the host wait.
  const torch::Tensor factor = given.factor.is_cpu()
                                   ? at::full({}, given.factor.item<float>(), options)
                                   : given.factor.to(device);
  return {factor, at::zeros({}, options)};
}

}  // namespace

bool unscale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor,
    const torch::Tensor& found) {
  const at::NoGradGuard no_gradients;
  std::map<std::string, Scalars> scalars;  // of each device
  for (auto& [kind, gradients] : gradients_of(parameters)) {
    const torch::Device device = gradients.front().device();
    const auto known = scalars.try_emplace(kind.first, scalars_on(device, {factor, found})).first;
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, known->second.found, known->second.factor);
  }
  for (const auto& [device, here] : scalars) {
    if (!here.found.is_same(found)) found.copy_(at::maximum(found, here.found.to(found.device())));
  }
  return !scalars.empty();
}

UnscaledGradients unscale_gradients(const std::vector<torch::Tensor>& parameters, double factor) {
  const torch::Tensor found = at::zeros({}, on_host(torch::kFloat));
  const bool any =
      unscale_gradients(parameters, at::full({}, factor, on_host(torch::kFloat)), found);
  return {.any = any, .finite = found.item<float>() == 0};
}

}  // namespace lockstep::nn
