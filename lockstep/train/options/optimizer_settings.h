#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/core/enum_names.h"
#include "lockstep/nn/ema_settings.h"
#include "lockstep/train/options/lr_settings.h"

namespace lockstep {

enum class OptimizerKind { kAdam, kSgd, kAdamW };
constexpr auto names_of(OptimizerKind) {
  return std::array{EnumName{OptimizerKind::kAdam, "adam"}, EnumName{OptimizerKind::kSgd, "sgd"},
      EnumName{OptimizerKind::kAdamW, "adamw"}};
}

enum class LrScale { kNone, kLinear, kSqrt };
constexpr auto names_of(LrScale) {
  return std::array{EnumName{LrScale::kNone, "none"}, EnumName{LrScale::kLinear, "linear"},
      EnumName{LrScale::kSqrt, "sqrt"}};
}

/// The parameters whose weights decay: all, or those with two dimensions or more, which
/// leaves out biases and norm layers as timm does.
enum class DecayOn { kAll, kWeights };
constexpr auto names_of(DecayOn) {
  return std::array{EnumName{DecayOn::kAll, "all"}, EnumName{DecayOn::kWeights, "weights"}};
}

/// The shares that Adam's moving averages keep at each step: of the gradients, and of their
/// squares. PyTorch's, where nothing else is said.
struct AdamBetas {
  double first = 0.9;
  double second = 0.999;
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdam;
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  DecayOn weight_decay_on = DecayOn::kAll;
  std::optional<double> eps = {};       ///< of adam and adamw; absent: usual_eps()
  std::optional<AdamBetas> betas = {};  ///< of the same
  LrScale lr_scale = LrScale::kNone;
  LrSettings schedule = {};
  std::optional<double> clip_grad = {};  ///< largest norm of all gradients together
  bool sharded = false;                  ///< state and work divided among the replicas
};

/// Returns the settings of an optimizer of which only the name is given.
OptimizerSettings default_settings(OptimizerKind kind);

/// Returns the epsilon of an adam or adamw that names none: 1e-7, as in Keras, or PyTorch's 1e-8.
double usual_eps(OptimizerKind kind);

/// Returns how many numbers an optimizer keeps of each parameter.
int state_copies(const OptimizerSettings& settings);

/// Returns the learning rate for steps of several batches: replicas times accumulated batches.
/// `linear` follows the global batch, `sqrt` its root; the rate asked for is that of one batch on
/// one replica.
double scaled_lr(const OptimizerSettings& settings, std::int64_t batches_a_step);

/// Throws InvalidArgument that names the flag unless the values fit each other.
void check_optimizer(const OptimizerSettings& settings, const TrainLimits& limits);

}  // namespace lockstep
