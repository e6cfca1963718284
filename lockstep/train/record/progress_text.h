#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/train/record/summary.h"

namespace lockstep {

/// Is where a run stands.
struct ProgressState {
  std::int64_t epoch = 1;
  std::optional<std::int64_t> epochs = {};
  std::int64_t step = 0;   ///< of this epoch
  std::int64_t steps = 1;  ///< of this epoch
  std::optional<double> loss = {};
  std::optional<double> samples_per_s = {};
  std::optional<double> seconds_left = {};
};

/// Draws the state in one line of at most so many columns, with a bar as wide as the rest leaves.
std::string bar_text(const ProgressState& state, std::size_t columns);

/// Writes the state as one plain line.
std::string line_text(const ProgressState& state);

/// Writes what an epoch came to as one plain line.
std::string epoch_text(const EpochSummary& epoch, const std::optional<std::int64_t>& epochs);

}  // namespace lockstep
