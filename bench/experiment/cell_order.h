#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

}  // namespace lockstep::bench
