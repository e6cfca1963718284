#include "lockstep/nn/unscale.h"

#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

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
  std::unordered_set<const at::TensorImpl*> seen;
  GradientsByKind gradients;
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    torch::Tensor dense = dense_part(parameter);
    gradients[{dense.device().str(), dense.scalar_type()}].push_back(std::move(dense));
  }
  return gradients;
}

}  // namespace

UnscaledGradients unscale_gradients(const std::vector<torch::Tensor>& parameters, double factor) {
  const at::NoGradGuard no_gradients;
  UnscaledGradients result;
  std::map<std::string, torch::Tensor> found;  // one value a device has to be waited for
  for (auto& [kind, gradients] : gradients_of(parameters)) {
    const auto options = at::TensorOptions(torch::kFloat).device(gradients.front().device());
    torch::Tensor& found_here = found.try_emplace(kind.first, at::zeros({}, options)).first->second;
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, found_here, at::full({}, factor, options));
    result.any = true;
  }
  for (const auto& [device, count] : found) result.finite &= count.item<float>() == 0;
  return result;
}

}  // namespace lockstep::nn
