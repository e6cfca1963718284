#include "lockstep/train/optim/lr_plateau.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

bool is_better(double value, const std::optional<double>& best, const PlateauRule& rule) {
  if (!best) return std::isfinite(value);
  return rule.larger_is_better ? value > *best * (1 + rule.threshold)
                               : value < *best * (1 - rule.threshold);
}

double fallen(double lr, const PlateauRule& rule) {
  const double lower = std::max(lr * rule.factor, rule.min_lr);
  return lr - lower > rule.smallest_fall ? lower : lr;
}

}  // namespace

PlateauState after_evaluation(PlateauState state, double value, const PlateauRule& rule) {
  if (is_better(value, state.best, rule)) {
    state.best = value;
    state.bad = 0;
  } else {
    ++state.bad;
  }
  if (state.cooldown_left > 0) {
    --state.cooldown_left;
    state.bad = 0;
  }
  if (state.bad > rule.patience) {
    state.lr = fallen(state.lr, rule);
    state.cooldown_left = rule.cooldown;
    state.bad = 0;
  }
  return state;
}

}  // namespace lockstep
