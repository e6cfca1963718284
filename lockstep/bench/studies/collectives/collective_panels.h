#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/collective.h"
#include "lockstep/bench/experiment/results.h"
#include "lockstep/bench/studies/collectives/sweep_grid.h"

namespace lockstep::bench {

/// Is one collective among one number of ranks, by every way.
struct CollectivePanel {
  Collective collective = Collective::kAllReduce;
  int ranks = 2;
  std::vector<std::int64_t> sizes = {};
  std::map<std::string, CellResult> ways = {};  ///< by the way's name

  /// Gives the way's cell; nullptr when the study has none.
  const CellResult* way(const std::string& name) const;

  /// Tells whether there are more ranks than cores.
  bool oversubscribed() const;

  /// Estimates the seconds of a call.
  std::optional<Estimate> seconds(const std::string& way, std::int64_t bytes) const;

  /// Estimates how many times the way's time Gloo takes; nothing for Gloo.
  std::optional<Estimate> gloo_over(const std::string& way, std::int64_t bytes) const;

  /// Gives the seconds that the least of reading and writing takes at the rate of a copy: the
  /// median over the copies that all the panel's runs made.
  std::optional<double> predicted_seconds(std::int64_t bytes) const;

  /// Gives what a reader must know of a row: what is odd about which way. `-` if nothing.
  std::string note(std::int64_t bytes) const;

  /// Gives `all_reduce of 2 ranks`.
  std::string name() const;
};

/// Gives the name of a sample's value: the median seconds of a call, or of a copy.
std::string seconds_value(std::int64_t bytes);
std::string copy_value(std::int64_t bytes);

/// Sorts samples into panels, in the order of the study's cells.
std::vector<CollectivePanel> collective_panels(const Study& study, std::span<const Sample> samples);

/// Writes a size: `64 KiB`.
std::string size_text(std::int64_t bytes);

}  // namespace lockstep::bench
