#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

}  // namespace lockstep
