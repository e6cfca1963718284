#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/experiment/study.h"
#include "bench/statistics/median.h"

namespace lockstep::bench {

/// The samples of a cell and the estimates from them.
struct CellResult {
  StudyCell cell;
  std::vector<Sample> samples;                ///< one a round, failed ones too, by round
  std::map<std::string, Estimate> estimates;  ///< by value's name; none for one ever not finite
  bool oversubscribed = false;
  /// Why it has no number: not measurable, or all failed (the last failure), or not run yet. Empty
  /// if a sample worked.
  std::string reason;
  int failures = 0;  ///< samples that failed

  /// Returns an estimate; nothing when there is none.
  std::optional<Estimate> estimate(const std::string& value) const;

  /// Returns a value of each sample that worked and has it finite, by round.
  std::map<int, double> by_round(const std::string& value) const;

  /// Returns the rounds whose value is an outlier among the cell's.
  std::vector<int> outlier_rounds(const std::string& value) const;

  /// Returns a setting of the cell; "" when it has none of that name.
  std::string setting(const std::string& name) const;
};

/// Sorts samples into the study's cells, in their order. Samples of other studies and cells are
/// left out; of several of one round the last counts.
std::vector<CellResult> cell_results(const Study& study, std::span<const Sample> samples);

/// Estimates how much larger a value is in one cell than in another, from the rounds that both
/// have; nothing when there is none, or a denominator is 0.
std::optional<Estimate> ratio_of(
    const CellResult& numerator, const CellResult& denominator, const std::string& value);

}  // namespace lockstep::bench
