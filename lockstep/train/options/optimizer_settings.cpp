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

double usual_eps(OptimizerKind kind) { return kind == OptimizerKind::kAdam ? 1e-7 : 1e-8; }

int state_copies(const OptimizerSettings& settings) {
  if (settings.kind != OptimizerKind::kSgd) return 2;
  return settings.momentum > 0 ? 1 : 0;
}

double scaled_lr(const OptimizerSettings& settings, std::int64_t batches_a_step) {
  const auto batches = static_cast<double>(batches_a_step);
  if (settings.lr_scale == LrScale::kLinear) return settings.lr * batches;
  if (settings.lr_scale == LrScale::kSqrt) return settings.lr * std::sqrt(batches);
  return settings.lr;
}

namespace {

void check_is_adam(const char* flag, bool is_given, OptimizerKind kind) {
  check(!is_given || kind != OptimizerKind::kSgd, "train: ", flag,
      " is for --opt adam and adamw; it is ", name_of(kind));
}

void check_beta(double beta) {
  check(beta >= 0 && beta < 1,
      "train: --opt-betas must be numbers of at least 0 and below 1: ", beta);
}

}  // namespace

void check_optimizer(const OptimizerSettings& settings, const TrainLimits& limits) {
  check(settings.momentum == 0 || settings.kind == OptimizerKind::kSgd,
      "train: --momentum is for --opt sgd; ", name_of(settings.kind), " has its own");
  check(settings.weight_decay_on == DecayOn::kAll || settings.weight_decay > 0,
      "train: --weight-decay-on says which parameters decay, and none does: give --weight-decay");
  check_is_adam("--opt-eps", settings.eps.has_value(), settings.kind);
  check_is_adam("--opt-betas", settings.betas.has_value(), settings.kind);
  if (settings.betas) check_beta(settings.betas->first);
  if (settings.betas) check_beta(settings.betas->second);
  check_lr_settings(settings.schedule, settings.lr, limits);
}

}  // namespace lockstep
