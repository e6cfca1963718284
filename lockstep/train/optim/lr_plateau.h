#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// Says when and how far a learning rate falls because evaluations no longer improve; the defaults
/// are those of PyTorch's ReduceLROnPlateau, but for `larger_is_better`.
struct PlateauRule {
  double factor = 0.1;
  std::int64_t patience = 10;  ///< evaluations without improvement that are let pass
  std::int64_t cooldown = 0;   ///< evaluations after a fall in which none are counted
  double min_lr = 0;
  double threshold = 1e-4;  ///< share of the best value by which a better one must differ
  double smallest_fall = 1e-8;
  bool larger_is_better = false;  ///< an accuracy; else a loss
};

/// Is all that the rule remembers between evaluations: what a snapshot must hold.
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

}  // namespace lockstep
