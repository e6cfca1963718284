#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Names how the learning rate falls after the warm-up; `T` is how long it falls, `t` the time.
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

/// Gives the name on the command line, as timm has them: constant, step, multistep, exponential,
/// cosine, poly, onecycle, plateau.
const char* name_of(LrScheduleKind kind);

/// Says whether it must know how long the training takes.
bool has_length(LrScheduleKind kind);

/// Is how the learning rate runs through a training, times in ticks of `steps_a_tick` steps.
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

/// Gives the learning rate of a step, counted from 0: of nothing but the schedule and the step, so
/// a training that is resumed has the rates of one that was not.
///
/// The values are those of Python PyTorch's classes of the same name, in closed form. After its end
/// a schedule keeps its last rate.
double lr_at(const LrSchedule& schedule, std::int64_t step);

}  // namespace lockstep
