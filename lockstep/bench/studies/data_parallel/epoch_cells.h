#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench {

inline constexpr const char* kFirstEpoch = "first_epoch_seconds";
inline constexpr const char* kSecondEpoch = "second_epoch_seconds";

/// Is a cell of the data-parallel study with its coordinates as numbers.
struct EpochCell {
  std::string model;
  int repeat = 1;
  int batch = 128;
  int places = 1;
  std::string way;  ///< serial, dp, ddp
  CellResult result;

  /// Gives the part of an epoch that its times are extrapolated from, or 1.
  double epoch_share() const;

  /// Tells whether it has a number, and its places had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }
};

/// Sorts samples into the study's cells.
std::vector<EpochCell> epoch_cells(const Study& study, std::span<const Sample> samples);

/// Finds the cell of the same model, repeat and batch with other places; nullptr if there is none.
const EpochCell* sibling(
    const std::vector<EpochCell>& cells, const EpochCell& cell, int places, const std::string& way);

/// Estimates how many times as fast the second epoch is as on one place; nothing for one place.
std::optional<Estimate> speed_up(const std::vector<EpochCell>& cells, const EpochCell& cell);

/// Estimates how many times the second epoch of ddp a second epoch of dp takes; `cell` is either.
std::optional<Estimate> dp_over_ddp(const std::vector<EpochCell>& cells, const EpochCell& cell);

/// Gives how many times as fast as one GPU the published second epoch is; nothing where the study
/// has no number.
std::optional<double> published_speed_up(const EpochCell& cell);

}  // namespace lockstep::bench
