#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The course of the learning rate after the warm-up; `T` is how long it falls, `t` the time.
enum class LrScheduleKind {
  kConstant,
  kStep,         ///< times `rate` every `interval`
  kMultistep,    ///< times `rate` at each milestone
  kExponential,  ///< times `rate` at every tick
  kCosine,       ///< half a cosine down to min_lr in T
  kPolynomial,   ///< (1 - t/T)^power down to min_lr in T
  kOneCycle,     ///< up for a share of T and down to almost 0, both by a cosine
  kPlateau       ///< constant here; LrPlateau lowers it
};

/// The names are timm's.
constexpr auto names_of(LrScheduleKind) {
  using Kind = LrScheduleKind;
  return std::array{EnumName{Kind::kConstant, "constant"}, EnumName{Kind::kStep, "step"},
      EnumName{Kind::kMultistep, "multistep"}, EnumName{Kind::kExponential, "exponential"},
      EnumName{Kind::kCosine, "cosine"}, EnumName{Kind::kPolynomial, "poly"},
      EnumName{Kind::kOneCycle, "onecycle"}, EnumName{Kind::kPlateau, "plateau"}};
}

/// True if it must know how long the training takes.
bool has_length(LrScheduleKind kind);

/// The course of the learning rate through a training, times in ticks of `steps_a_tick` steps.
///
/// The warm-up comes first and the schedule's own time begins when it ends, as with PyTorch's
/// SequentialLR.
struct LrSchedule {
  LrScheduleKind kind = LrScheduleKind::kConstant;
  double lr = 1e-3;               ///< from which it falls; of kOneCycle the highest
  double min_lr = 0;              ///< below which nothing but the warm-up goes
  std::int64_t steps_a_tick = 1;  ///< 1, or the steps of an epoch
  std::int64_t warmup = 0;        ///< ticks in which it rises from warmup_lr to lr
  double warmup_lr = 0;
  std::int64_t length = 1;                    ///< ticks after the warm-up: T
  std::int64_t interval = 1;                  ///< of kStep, in ticks
  std::vector<std::int64_t> milestones = {};  ///< of kMultistep, in ticks, ascending
  double rate = 0.1;
  double power = 1;
  double pct_start = 0.3;         ///< of kOneCycle: the share of T in which it rises
  double div_factor = 25;         ///< of kOneCycle: lr / the first rate
  double final_div_factor = 1e4;  ///< of kOneCycle: the first rate / the last
};

/// Returns the learning rate of a step, counted from 0; one below is an InvalidArgument. It depends
/// on nothing but the schedule and the step, so a training that is resumed has the rates of one
/// that was not.
///
/// The values are those of Python PyTorch's classes of the same name, in closed form. After its end
/// a schedule keeps its last rate.
double lr_at(const LrSchedule& schedule, std::int64_t step);

/// The rule by which a learning rate falls because evaluations no longer improve; the defaults are
/// those of PyTorch's ReduceLROnPlateau, but for `larger_is_better`.
struct PlateauRule {
  double factor = 0.1;
  std::int64_t patience = 10;  ///< evaluations without improvement before a fall
  std::int64_t cooldown = 0;   ///< evaluations after a fall in which none are counted
  double min_lr = 0;
  double threshold = 1e-4;  ///< share of the best value by which a better one must differ
  double smallest_fall = 1e-8;
  bool larger_is_better = false;  ///< an accuracy; else a loss
};

/// All that the rule remembers between evaluations: what a snapshot must hold.
struct PlateauState {
  double lr = 0;  ///< as it is now
  std::optional<double> best = {};
  std::int64_t bad = 0;            ///< evaluations in a row that did not improve
  std::int64_t cooldown_left = 0;  ///< evaluations

  friend bool operator==(const PlateauState&, const PlateauState&) = default;
};

/// Takes in one evaluation's loss or accuracy. A value that is not finite counts as no improvement.
///
///     for (double loss : losses) state = after_evaluation(state, loss, rule);
PlateauState after_evaluation(PlateauState state, double value, const PlateauRule& rule);

/// The learning rate of every step: by the schedule alone, but for a plateau's also by the
/// evaluations so far, of which the caller keeps the state.
///
///     LrScheduler scheduler(schedule, rule);
///     PlateauState plateau = scheduler.start();
///     double lr = scheduler.lr(step, plateau);                        // counted from 0
///     plateau = scheduler.evaluated(plateau, steps_made, loss);       // after each evaluation
class LrScheduler {
 public:
  LrScheduler(LrSchedule schedule, const PlateauRule& rule)
      : schedule_(std::move(schedule)), rule_(rule) {}

  PlateauState start() const { return {.lr = schedule_.lr}; }

  double lr(std::int64_t step, const PlateauState& plateau) const;

  /// Takes in an evaluation after that many steps; those of the warm-up do not count.
  PlateauState evaluated(const PlateauState& plateau, std::int64_t steps, double value) const;

 private:
  bool follows_plateau(std::int64_t step) const;

  LrSchedule schedule_;
  PlateauRule rule_;
};

}  // namespace lockstep
