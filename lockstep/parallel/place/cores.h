#pragma once

#include <string>
#include <vector>

namespace lockstep::place {

/// Lists the cores that the calling thread may use, neighbours first: threads of one core, then
/// cores of one socket. Throws std::system_error if the operating system does not tell.
std::vector<int> allowed_cores();

/// Divides cores into `count` >= 1 contiguous sets, the first ones larger by one where it does not
/// come out even. Fewer cores than sets: each set has one core, and sets share cores in turn.
///
///     divide_cores({0, 1, 2}, 2)   // {0, 1} {2}
///     divide_cores({0, 1}, 3)      // {0} {1} {0}
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int count);

/// Writes cores as ranges: `0-3,8`.
std::string core_ranges(std::vector<int> cores);

}  // namespace lockstep::place
