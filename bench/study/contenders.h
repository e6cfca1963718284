#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/experiment/results.h"

namespace lockstep::bench {

/// Finds the cell with the largest median of a value, of those whose places have cores of their own
/// and that are not `but`; nothing without one.
std::optional<std::size_t> largest(std::span<const CellResult> results, const std::string& value,
    std::optional<std::size_t> but = {});

/// Says of each cell whether another round of it helps to find the one whose value is the largest.
///
/// Those not measured yet need one. Then the largest so far goes on with all that are not out: one
/// is out when its ratio to the largest is surely below 1 or surely equal to it (verdict.h), which
/// takes 5 rounds; and, unless it is the second, when it has less than two thirds of the largest in
/// each of two rounds or more. So are cells that failed and those that are oversubscribed. When
/// only the largest is left, nothing is to be measured any more.
std::vector<bool> contenders(std::span<const CellResult> results, const std::string& value);

}  // namespace lockstep::bench
