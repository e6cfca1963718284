#include "lockstep/nn/optim/clip_grad_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {
namespace {

double norm_of(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients) {
    norms.push_back(at::linalg_vector_norm(gradient).to(at::kCPU, at::kDouble));
  }
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

}  // namespace

double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm) {
  check(max_norm > 0, "clip_grad_norm: the largest norm must be positive: ", max_norm);
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (gradients.empty()) return 0;
  const double norm = norm_of(gradients);
  // PyTorch's small addend: the clipped norm stays just below the bound.
  const double scale = max_norm / (norm + 1e-6);
  if (scale >= 1) return norm;
  for (auto& gradient : gradients) gradient.mul_(scale);
  return norm;
}

}  // namespace lockstep::nn
