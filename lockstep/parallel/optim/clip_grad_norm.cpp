#include "lockstep/parallel/optim/clip_grad_norm.h"

#include <cmath>
#include <map>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"

namespace lockstep {
namespace {

using torch::Tensor;

constexpr double kAddend = 1e-6;  // PyTorch's: the clipped norm stays just below the bound

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : distinct(parameters))
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

Tensor squared_norm(const Tensor& gradient) {
  const Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
  return at::linalg_vector_norm(values, 2, {}, false, torch::kDouble).square();
}

// Summed where the gradients are: waits for one value a device, not one a gradient.
double local_squared_norm(const std::vector<Tensor>& gradients) {
  std::map<std::string, Tensor> sums;
  for (const Tensor& gradient : gradients) {
    Tensor& sum = sums[gradient.device().str()];
    sum = sum.defined() ? sum + squared_norm(gradient) : squared_norm(gradient);
  }
  double total = 0;
  for (const auto& [device, sum] : sums) total += sum.item<double>();
  return total;
}

// On the host, where each rank has its number, also one without parameters.
double norm_over(const std::vector<Tensor>& gradients, const ProcessGroup& group) {
  const Tensor sum = at::full({1}, local_squared_norm(gradients), on_host(torch::kDouble));
  group.all_reduce(sum).wait();
  return std::sqrt(sum.item<double>());
}

Tensor squared_norm_over(
    const std::vector<Tensor>& gradients, const ProcessGroup& group, torch::Device device) {
  Tensor sum = at::zeros({}, at::TensorOptions(torch::kDouble).device(device));
  for (const Tensor& gradient : gradients) sum += squared_norm(gradient).to(device);
  group.all_reduce(sum).wait();
  return sum;
}

}  // namespace

void clip_gradients(const std::vector<Tensor>& parameters, double max_norm,
    const ProcessGroup& group, torch::Device device) {
  if (device.is_cpu()) {
    clip_grad_norm(parameters, max_norm, group, NonFiniteNorm::kSpread);
    return;
  }
  check(max_norm > 0, "clip_gradients: the largest norm must be positive: ", max_norm);
  const torch::NoGradGuard no_gradients;
  std::vector<Tensor> gradients = gradients_of(parameters);
  const Tensor norm = squared_norm_over(gradients, group, device).sqrt();
  const Tensor scale = (max_norm / (norm + kAddend)).clamp_max(1);
  for (Tensor& gradient : gradients) gradient.mul_(scale.to(gradient.device()));
}

double clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm,
    const ProcessGroup& group, NonFiniteNorm non_finite) {
  check(max_norm > 0, "clip_grad_norm: the largest norm must be positive: ", max_norm);
  const torch::NoGradGuard no_gradients;
  std::vector<Tensor> gradients = gradients_of(parameters);
  const double norm = norm_over(gradients, group);
  if (non_finite == NonFiniteNorm::kThrow && !std::isfinite(norm)) {
    throw DivergedError(
        concat("clip_grad_norm: the norm of the gradients over ", group.size(), " ranks is ", norm,
            "; lower the learning rate, or scale the loss if the gradients are half precision"));
  }
  const double scale = max_norm / (norm + kAddend);
  if (scale >= 1) return norm;
  for (Tensor& gradient : gradients) gradient.mul_(scale);
  return norm;
}

}  // namespace lockstep
