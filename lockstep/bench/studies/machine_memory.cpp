#include "lockstep/bench/studies/machine_memory.h"

#include <algorithm>

#include <unistd.h>

#include "lockstep/launch/cgroup.h"

namespace lockstep::bench {

std::int64_t machine_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const std::int64_t here = pages > 0 && page > 0 ? pages * page : 0;
  const auto limit = launch::cgroup_memory_limit();
  if (!limit) return here;
  return here == 0 ? *limit : std::min(here, *limit);
}

}  // namespace lockstep::bench
