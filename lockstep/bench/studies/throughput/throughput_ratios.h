#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/bench/studies/throughput/throughput_cells.h"

namespace lockstep::bench {

/// Is one of the study's ratios of seconds a sample: how many times as fast `cell` is as `base`.
struct ThroughputRatio {
  /// Says what was changed: one place became several, the batch larger besides, or float32 half.
  enum class Change { kPlaces, kPlacesAndBatch, kPrecision };

  Change change = Change::kPlaces;
  const ThroughputCell* base = nullptr;  ///< of the cells that it was made of, as `cell`
  const ThroughputCell* cell = nullptr;
  std::optional<Estimate> measured;
  std::optional<double> predicted;  ///< nothing is lost by spreading; none for half precision
  std::optional<double> published;

  /// Names both sides: `one place / dp, 4 times the batch`.
  std::string name() const;

  /// Tells whether both have a number and cores of their own.
  bool is_fair() const { return base->is_fair() && cell->is_fair() && measured.has_value(); }
};

/// Lists the ratios that the cells have, dp's before ddp's; each in the study's order.
std::vector<ThroughputRatio> throughput_ratios(const std::vector<ThroughputCell>& cells);

/// Gives how many times as long a sample takes with dp as with ddp; nothing without both. `cell` is
/// either.
std::optional<Estimate> dp_over_ddp(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell);

}  // namespace lockstep::bench
