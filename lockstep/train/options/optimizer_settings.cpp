#include "lockstep/train/options/optimizer_settings.h"

#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep {

OptimizerSettings default_settings(OptimizerKind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  if (kind == OptimizerKind::kSgd) {
    settings.lr = 0.01;
    settings.momentum = 0.9;
  }
  if (kind == OptimizerKind::kAdamW) settings.weight_decay = 0.01;
  return settings;
}

double scaled_lr(const OptimizerSettings& settings, std::int64_t batches_a_step) {
  const auto batches = static_cast<double>(batches_a_step);
  if (settings.lr_scale == LrScale::kLinear) return settings.lr * batches;
  if (settings.lr_scale == LrScale::kSqrt) return settings.lr * std::sqrt(batches);
  return settings.lr;
}

void check_optimizer(const OptimizerSettings& settings, const TrainLimits& limits) {
  check(settings.momentum == 0 || settings.kind == OptimizerKind::kSgd,
      "train: --momentum is for --opt sgd; ", name_of(settings.kind), " has its own");
  check_lr_settings(settings.schedule, settings.lr, limits);
}

}  // namespace lockstep
