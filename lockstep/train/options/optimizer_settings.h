#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/nn/ema_settings.h"
#include "lockstep/train/optim/lr_schedule.h"

namespace lockstep {

/// The limits of a training, which ends at the first of these; an absent one never ends it.
struct TrainLimits {
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};
  std::optional<double> seconds = {};
};

/// The settings of the learning rate, as the flags have them: times in epochs; what was not given
/// is absent.
struct LrSettings {
  static constexpr double kWarmupLr = 1e-5;  ///< of a warm-up that names no rate; timm's
  static constexpr double kDecayRate = 0.1, kExponentialRate = 0.9;

  LrScheduleKind kind = LrScheduleKind::kConstant;
  bool on_updates = false;  ///< changes at every step instead of every epoch
  std::optional<std::int64_t> warmup_epochs = {};
  std::optional<std::int64_t> warmup_steps = {};
  std::optional<double> warmup_lr = {};
  std::optional<double> min_lr = {};
  std::optional<std::int64_t> decay_epochs = {};
  std::vector<std::int64_t> decay_milestones = {};
  std::optional<double> decay_rate = {};
  std::optional<double> power = {};
  std::optional<std::int64_t> patience_epochs = {};
  std::optional<std::int64_t> cooldown_epochs = {};
  std::optional<double> pct_start = {};
  std::optional<double> div_factor = {};
  std::optional<double> final_div_factor = {};
};

/// Throws InvalidArgument that names the flag unless the settings fit each other and the limits;
/// `lr` is the rate that they start from.
void check_lr_settings(const LrSettings& settings, double lr, const TrainLimits& limits);

/// Resolves checked settings for epochs of this number of steps.
///
/// Time passes by epochs, or by steps if that is asked for, if the warm-up is in steps, for
/// kOneCycle, and where nothing but --max-steps says how long kCosine and kPolynomial take. They
/// end with the last of the epochs, else of the steps, whichever limit ends the training.
LrSchedule make_lr_schedule(
    const LrSettings& settings, double lr, const TrainLimits& limits, std::int64_t steps_an_epoch);

/// Returns the rule of kPlateau, for losses or for accuracies.
PlateauRule plateau_rule(const LrSettings& settings, bool larger_is_better);

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
