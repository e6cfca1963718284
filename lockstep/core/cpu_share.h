#pragma once

#include <vector>

namespace lockstep {

/// Returns the cores that this process may use, neighbours first: threads of one core, then cores
/// of one socket.
std::vector<int> available_cpus();

/// Returns how many cores there are to work with: those available to the calling thread, or fewer
/// where a cgroup's quota allows no more. The number of threads to start where nobody names one.
int usable_cpu_count();

/// Returns how many threads may compute on so many of the available cores: one each, or their part
/// of what a quota allows; at least one.
int threads_on(int cores);

/// Returns how many threads of this host can run at the same time in this process's cgroup, be they
/// pinned as they may.
int cores_at_once();

/// Returns one of `shares` contiguous parts of the cores; the first parts are one larger when it
/// does not come out even. Empty when there are fewer cores than parts: then nothing is pinned.
///
///     cpu_share({0, 1, 2, 3, 4}, 0, 2)   // 0 1 2
///     cpu_share({0, 1, 2, 3, 4}, 1, 2)   // 3 4
std::vector<int> cpu_share(const std::vector<int>& cpus, int index, int shares);

}  // namespace lockstep
