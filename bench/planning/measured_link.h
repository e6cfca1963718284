#pragma once

#include <string>
#include <vector>

#include "bench/collectives/sweep.h"
#include "lockstep/plan/machine.h"

namespace lockstep::bench {

/// Returns the link over which the ranks of a sweep exchanged messages: an all-reduce of n ranks is
/// a ring of 2 (n - 1) messages of a part of the bytes. Measure with one rank a node.
///
/// It takes the sweep's Gloo, or its only backend. Throws DataError that begins with `where`
/// without all-reduces of at least two sizes.
plan::Link link_of_sweep(const std::vector<SweepLine>& lines, const std::string& where);

}  // namespace lockstep::bench
