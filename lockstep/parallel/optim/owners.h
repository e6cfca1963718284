#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Assigns every parameter of every group to a rank, with about equal numbers of elements.
///
/// PyTorch's rule (ZeroRedundancyOptimizer): group by group, the largest parameter first (of equal
/// ones the first), to the rank that has least so far (of equal ones the lowest). The same on all
/// ranks; a group added later changes no owner of those before. Throws InvalidArgument if ranks is
/// below 1.
std::vector<std::vector<int>> balanced_owners(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks);

}  // namespace lockstep
