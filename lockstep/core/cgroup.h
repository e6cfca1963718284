#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Finds the value that follows a key in lines of `KEY VALUE`, as the kernel's event files have
/// them.
std::optional<std::int64_t> keyed_number(const std::string& text, const std::string& key);

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
