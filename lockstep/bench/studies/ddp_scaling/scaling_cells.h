#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench {

/// Is a cell of the ddp-scaling study with its coordinates.
struct ScalingCell {
  int nodes = 1;
  int places = 1;
  std::string started_by;  ///< train, run, torchrun, hosts
  std::string link;        ///< between nodes: none, a rate, or real
  int pixels = 0;          ///< height and width of the images
  CellResult result;

  /// Gives the part of an epoch that its times are extrapolated from, or 1.
  double epoch_share() const;

  /// Tells whether it has a number, and its places had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }

  /// Says what it is: `2 places on 2 nodes`.
  std::string name() const;

  /// Says by what it was started: `lockstep run`.
  std::string launcher() const;
};

/// Sorts samples into the study's cells.
std::vector<ScalingCell> scaling_cells(const Study& study, std::span<const Sample> samples);

/// Finds a cell; nullptr if there is none.
const ScalingCell* scaling_cell_of(
    const std::vector<ScalingCell>& cells, int nodes, int places, const std::string& started_by);

/// Estimates how many times as fast as one place it is; nothing for one place.
std::optional<Estimate> scaling_speed_up(
    const std::vector<ScalingCell>& cells, const ScalingCell& cell);

/// Gives how many times as fast as one GPU the published run is; nothing where there is none.
std::optional<double> published_scaling(const ScalingCell& cell);

/// Predicts the seconds of ten epochs from those of one place: an equal share of its work for each
/// place, and the gradients over the link, hidden behind nothing. Nothing for one place and for
/// links whose rate is not known.
std::optional<double> predicted_run_seconds(
    const std::vector<ScalingCell>& cells, const ScalingCell& cell);

}  // namespace lockstep::bench
