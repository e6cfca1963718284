#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/experiment/study.h"

namespace lockstep::bench {

/// One sample that is to be taken.
struct Turn {
  std::size_t cell = 0;  ///< index in the study
  int round = 1;

  bool operator==(const Turn&) const = default;
};

/// Draws the order of this many cells in a round; the same for equal arguments on all machines.
std::vector<std::size_t> round_order(std::uint64_t seed, int round, std::size_t cells);

/// Lists what is missing of a study, round by round, each in its drawn order: what is there changes
/// neither the order of the rest nor what belongs to it. Cells that cannot be measured are left
/// out. Samples that failed count as there, unless they are to be taken again.
std::vector<Turn> missing_turns(
    const Study& study, std::span<const Sample> samples, std::uint64_t seed, bool retry_failed);

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
