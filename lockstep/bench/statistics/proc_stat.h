#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

/// Adds up for how many ticks the cores did work since the system started, from the text of
/// /proc/stat. Time that a hypervisor gave to other guests counts as work, waiting for a disk does
/// not. NaN when a core has no line, or one without these numbers.
double busy_ticks(const std::string& proc_stat, const std::vector<int>& cpus);

}  // namespace lockstep::bench
