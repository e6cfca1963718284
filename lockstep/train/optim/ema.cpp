#include "lockstep/train/optim/ema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr double kWarmupPower = 2.0 / 3;  // timm's, for a million steps or more

std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  copies.reserve(tensors.size());
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

}  // namespace

double ema_decay(const EmaSettings& settings, std::int64_t number) {
  if (number <= 1) return 0;
  if (!settings.warmup) return settings.decay;
  return std::min(1 - std::pow(static_cast<double>(number), -kWarmupPower), settings.decay);
}

ModelEma::ModelEma(std::vector<torch::Tensor> tensors, const EmaSettings& settings)
    : tensors_(std::move(tensors)), averages_(copies_of(tensors_)), settings_(settings) {}

void ModelEma::update() {
  const at::NoGradGuard no_gradients;
  const double decay = ema_decay(settings_, ++updates_);
  std::vector<torch::Tensor> averages, values;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].is_floating_point()) {
      averages_[i].copy_(tensors_[i]);
      continue;
    }
    averages.push_back(averages_[i]);
    values.push_back(tensors_[i].detach());
  }
  if (!averages.empty()) at::_foreach_lerp_(averages, values, 1 - decay);
}

void ModelEma::exchange() {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor value = tensors_[i].detach().clone();
    tensors_[i].detach().copy_(averages_[i]);
    averages_[i].copy_(value);
  }
}

void ModelEma::with_averages(const std::function<void()>& body) {
  exchange();
  try {
    body();
  } catch (...) {
    exchange();
    throw;
  }
  exchange();
}

void ModelEma::restore(const std::vector<torch::Tensor>& averages, std::int64_t updates) {
  check(averages.size() == averages_.size() && updates >= 0, "ema: there are ", averages_.size(),
      " averages, not ", averages.size());
  for (std::size_t i = 0; i < averages.size(); ++i)
    check(averages[i].sizes() == averages_[i].sizes(), "ema: average ", i, " has the shape ",
        averages_[i].sizes(), ", not ", averages[i].sizes());
  for (std::size_t i = 0; i < averages.size(); ++i) averages_[i].copy_(averages[i]);
  updates_ = updates;
}

}  // namespace lockstep
