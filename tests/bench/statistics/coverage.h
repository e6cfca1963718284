#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/statistics/median.h"

namespace lockstep::bench::testing {

/// Counts the ways to choose, by Pascal's triangle: exact up to 60.
inline std::uint64_t choose(int from, int count) {
  std::vector<std::uint64_t> row{1};
  for (int i = 1; i <= from; ++i) {
    row.push_back(1);
    for (int j = i - 1; j > 0; --j) {
      row[static_cast<std::size_t>(j)] += row[static_cast<std::size_t>(j - 1)];
    }
  }
  return row[static_cast<std::size_t>(count)];
}

/// Returns how often an interval that leaves out this many values at each end covers the median.
inline double exact_coverage(int values, int left_out) {
  std::uint64_t missed = 0;
  for (int i = 0; i <= left_out; ++i) missed += 2 * choose(values, i);
  return 1 - static_cast<double>(missed) / std::ldexp(1.0, values);
}

/// Counts in which part of so many draws the interval held the truth.
inline double observed_coverage(
    int draws, double truth, const std::function<Estimate()>& draw_and_estimate) {
  int covered = 0;
  for (int i = 0; i < draws; ++i) {
    const Estimate estimate = draw_and_estimate();
    if (estimate.low <= truth && truth <= estimate.high) ++covered;
  }
  return static_cast<double>(covered) / draws;
}

/// Returns four standard deviations of the part of this many draws that hits with this probability.
inline double four_deviations(double probability, int draws) {
  return 4 * std::sqrt(probability * (1 - probability) / draws);
}

}  // namespace lockstep::bench::testing
