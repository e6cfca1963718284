#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the cores that this process may use, neighbours first: threads of one core, then cores
/// of one socket.
std::vector<int> available_cpus();

/// Returns how many cores there are to work with: those available to the calling thread, or fewer
/// where a cgroup's quota allows no more. The default number of threads.
int usable_cpu_count();

/// Returns how many threads may compute on so many of the available cores: one each, or their part
/// of what a quota allows; at least one.
int threads_on(int cores);

/// Returns how many threads of this process's cgroup can run at the same time on this host, however
/// they are pinned.
int cores_at_once();

/// Returns one of `shares` contiguous parts of the cores; the first parts are one larger when it
/// does not come out even. Empty when there are fewer cores than parts: then nothing is pinned.
///
///     cpu_share({0, 1, 2, 3, 4}, 0, 2)   // 0 1 2
///     cpu_share({0, 1, 2, 3, 4}, 1, 2)   // 3 4
std::vector<int> cpu_share(const std::vector<int>& cpus, int index, int shares);

/// Where the kernel tells of cgroups.
struct CgroupFiles {
  std::string mount = "/sys/fs/cgroup";   ///< where they are mounted
  std::string own = "/proc/self/cgroup";  ///< which ones this process is in
};

/// Reads how many cores the quotas of the own cgroup and of those around it allow, as 1.5, in
/// version 1 and 2; nothing when there is no quota.
std::optional<double> cgroup_cpu_quota(const CgroupFiles& files = {});

/// Reads the cgroup's memory limit in bytes; nothing when there is none.
std::optional<std::int64_t> cgroup_memory_limit();

/// Counts the processes that the kernel killed for want of memory.
struct OomKills {
  std::int64_t in_cgroup = 0;  ///< in the cgroup of this process
  std::int64_t on_host = 0;    ///< on the whole host since it was started
};

/// Reads the counts; what cannot be read counts as zero.
OomKills oom_kills();

}  // namespace lockstep
