#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Says how many bytes of memory a run may use: what the machine has, or less where a cgroup's
/// limit allows no more; 0: not known.
std::int64_t machine_memory();

}  // namespace lockstep::bench
