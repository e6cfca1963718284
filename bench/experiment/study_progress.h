#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "bench/experiment/cell_order.h"

namespace lockstep::bench {

/// Estimates how long the rest of a study takes: each sample as long as those of its cell took, one
/// of a cell that was not run yet as the mean over the other cells. Nothing before the first
/// sample.
std::optional<double> seconds_left(
    const Study& study, std::span<const Sample> samples, std::span<const Turn> rest);

/// The number of a sample among those of this run.
struct TurnCount {
  std::size_t number = 1;  ///< counted from 1
  std::size_t all = 1;     ///< 0: not known
};

/// Says which sample begins: `data-parallel: sample 5 of 36, round 1: mnist-small-b128-p2; about
/// 3:20 left`.
std::string turn_line(
    const Study& study, const Turn& turn, const TurnCount& count, std::optional<double> seconds);

/// Says what a sample came to: `mnist-small-b128-p2: 12.3 s; others used 4 % of the cores`, and why
/// it failed.
std::string sample_line(const Sample& sample, const std::string& log);

}  // namespace lockstep::bench
