#pragma once

#include <vector>

namespace lockstep::launch {

/// Returns the cores that this process may use, neighbours first: threads of one core, then cores
/// of one socket.
std::vector<int> available_cpus();

/// Returns how many cores there are to work with: those available, or fewer where a cgroup's quota
/// allows no more.
int usable_cpu_count();

/// Returns one of `shares` contiguous parts of the cores; the first parts are one larger when it
/// does not come out even. Empty when there are fewer cores than parts: then nothing is pinned.
///
///     cpu_share({0, 1, 2, 3, 4}, 0, 2)   // 0 1 2
///     cpu_share({0, 1, 2, 3, 4}, 1, 2)   // 3 4
std::vector<int> cpu_share(const std::vector<int>& cpus, int index, int shares);

}  // namespace lockstep::launch
