#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Finds the value that follows a key in lines of `KEY VALUE`, as the kernel's event files have
/// them.
std::optional<std::int64_t> keyed_number(const std::string& text, const std::string& key);

/// Reads how many cores the cgroup's quota allows, as 1.5; nothing when there is no quota.
std::optional<double> cgroup_cpu_quota();

/// Reads the cgroup's memory limit in bytes; nothing when there is none.
std::optional<std::int64_t> cgroup_memory_limit();

/// Counts the processes that the kernel killed for want of memory.
struct OomKills {
  std::int64_t in_cgroup = 0;  ///< in the cgroup of this process
  std::int64_t on_host = 0;    ///< on the whole host since it was started
};

/// Reads the counts; what cannot be read counts as zero.
OomKills oom_kills();

}  // namespace lockstep::launch
