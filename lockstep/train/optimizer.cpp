#include "lockstep/train/optimizer.h"

#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/sgd.h"

namespace lockstep {
namespace {

constexpr double kAdamEpsilon = 1e-7;

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, std::vector<torch::Tensor> parameters, int world_size) {
  const double lr = scaled_lr(settings, world_size);
  switch (settings.kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<nn::SGD>(
          std::move(parameters),
          torch::optim::SGDOptions(lr)
              .momentum(settings.momentum)
              .weight_decay(settings.weight_decay));
    case OptimizerKind::kAdamW:
      return std::make_unique<nn::AdamW>(
          std::move(parameters),
          torch::optim::AdamWOptions(lr).weight_decay(settings.weight_decay));
    case OptimizerKind::kAdam:
      break;
  }
  return std::make_unique<nn::Adam>(
      std::move(parameters),
      torch::optim::AdamOptions(lr).eps(kAdamEpsilon).weight_decay(settings.weight_decay));
}

}  // namespace lockstep
