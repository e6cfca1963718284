#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/options/lr_settings.h"
#include "lockstep/train/options/train_limits.h"

namespace lockstep {

enum class OptimizerKind { kAdam, kSgd, kAdamW };
enum class LrScale { kNone, kLinear, kSqrt };

/// Names the parameters whose weights decay: all, or those with two dimensions or more, which
/// leaves out biases and norm layers as timm does.
enum class DecayOn { kAll, kWeights };

const char* name_of(OptimizerKind value);
const char* name_of(LrScale value);
const char* name_of(DecayOn value);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdam;
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  DecayOn weight_decay_on = DecayOn::kAll;
  LrScale lr_scale = LrScale::kNone;
  LrSettings schedule = {};
  std::optional<double> clip_grad = {};  ///< largest norm of all gradients together
  bool sharded = false;                  ///< state and work divided among the replicas
};

/// Gives the settings that an optimizer has when only its name is said.
OptimizerSettings default_settings(OptimizerKind kind);

/// Gives the learning rate for steps of so many batches: replicas times accumulated batches.
/// `linear` follows the global batch, `sqrt` its root; the rate asked for is that of one batch on
/// one replica.
double scaled_lr(const OptimizerSettings& settings, std::int64_t batches_a_step);

/// Throws InvalidArgument that names the flag unless the values are possible and fit each other.
void check_optimizer(const OptimizerSettings& settings, const TrainLimits& limits);

}  // namespace lockstep
