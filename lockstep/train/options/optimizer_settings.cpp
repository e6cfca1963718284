#include "lockstep/train/options/optimizer_settings.h"

#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep {

const char* name_of(OptimizerKind value) {
  if (value == OptimizerKind::kAdam) return "adam";
  return value == OptimizerKind::kSgd ? "sgd" : "adamw";
}

const char* name_of(LrScale value) {
  if (value == LrScale::kNone) return "none";
  return value == LrScale::kLinear ? "linear" : "sqrt";
}

const char* name_of(DecayOn value) { return value == DecayOn::kAll ? "all" : "weights"; }

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
  check(
      std::isfinite(settings.lr) && settings.lr > 0,
      "train: --lr must be a number above 0: ", settings.lr);
  check(
      settings.momentum >= 0 && settings.momentum < 1,
      "train: --momentum must be at least 0 and below 1: ", settings.momentum);
  check(
      settings.momentum == 0 || settings.kind == OptimizerKind::kSgd,
      "train: --momentum is for --opt sgd; ", name_of(settings.kind), " has its own");
  check(
      settings.clip_grad.value_or(1) > 0,
      "train: --clip-grad must be a number above 0: ", settings.clip_grad.value_or(1));
  check(
      std::isfinite(settings.weight_decay) && settings.weight_decay >= 0,
      "train: --weight-decay must be at least 0: ", settings.weight_decay);
  check_lr_settings(settings.schedule, settings.lr, limits);
}

}  // namespace lockstep
