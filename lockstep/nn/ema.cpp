#include "lockstep/nn/ema.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr double kWarmupPower = 2.0 / 3;  // timm's, for a million steps or more

}  // namespace

double ema_decay(const EmaSettings& settings, std::int64_t number) {
  if (number <= 1) return 0;
  if (!settings.warmup) return settings.decay;
  return std::min(1 - std::pow(static_cast<double>(number), -kWarmupPower), settings.decay);
}

ModelEma::ModelEma(std::vector<torch::Tensor> tensors, const EmaSettings& settings)
    : tensors_(std::move(tensors)), settings_(settings) {
  std::unordered_map<const void*, std::size_t> seen;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto [first, is_new] = seen.emplace(tensors_[i].unsafeGetTensorImpl(), i);
    if (is_new) firsts_.push_back(i);
    averages_.push_back(is_new ? tensors_[i].detach().clone() : averages_[first->second]);
  }
}

void ModelEma::update() {
  const at::NoGradGuard no_gradients;
  const double decay = ema_decay(settings_, ++updates_);
  std::vector<torch::Tensor> averages, values;
  for (const std::size_t i : firsts_) {
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
  for (const std::size_t i : firsts_) {
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

nn::NamedTensors named_averages(const ModelEma& ema, const nn::NamedTensors& state) {
  check(ema.averages().size() == state.size(), "ema: there are ", ema.averages().size(),
      " averages, but the model has ", state.size(), " parameters and buffers");
  nn::NamedTensors averages("Tensor");
  auto average = ema.averages().begin();
  for (const auto& item : state) averages.insert(item.key(), *average++);
  return averages;
}

}  // namespace lockstep
