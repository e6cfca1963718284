#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench::scale_out {

inline constexpr double kMinute = 60;  // seconds

/// Is a cell of the study with its coordinates as numbers.
struct NodeCell {
  int nodes = 1;
  bool killed = false;  ///< a worker, in the middle
  double budget_seconds = 0;
  std::optional<double> bits_per_second = {};  ///< of the network; nothing for real ones
  CellResult result;

  /// Tells whether it has a number, and its nodes had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }

  /// Names it for a reader: `1 node`, `2 nodes, a worker killed`.
  std::string name() const;

  /// Gives the median of a value; nothing where there is none.
  std::optional<double> median(const std::string& value) const;
};

/// Sorts samples into the study's cells.
std::vector<NodeCell> node_cells(const Study& study, std::span<const Sample> samples);

/// Finds a cell; nullptr if there is none.
const NodeCell* find_nodes(const std::vector<NodeCell>& cells, int nodes, bool killed = false);

/// Estimates the scaling efficiency: the time of an epoch on one node over that on so many, divided
/// by their number. Nothing for one node.
std::optional<Estimate> efficiency(const std::vector<NodeCell>& cells, const NodeCell& cell);

/// Estimates how many times as much of a value a cell has as one node.
std::optional<Estimate> over_one_node(
    const std::vector<NodeCell>& cells, const NodeCell& cell, const std::string& value);

/// Predicts the efficiency of so many nodes whose gradients are sent after the whole step is
/// computed: step / (step + 2 (n - 1) / n x bytes / rate), as a ring all-reduce sends them.
double ring_efficiency(int nodes, double step_seconds, double bytes, double bits_per_second);

/// Predicts it for a cell from one node's step; nothing where rate or step is not known.
std::optional<double> predicted_efficiency(
    const std::vector<NodeCell>& cells, const NodeCell& cell);

/// Says what a reader must know of a cell's numbers, or why there are none; `-` if nothing.
std::string note_of(const NodeCell& cell);

/// Writes the training time of the study for people: `2 h`, `10 s`.
std::string budget_text(double seconds);

}  // namespace lockstep::bench::scale_out
