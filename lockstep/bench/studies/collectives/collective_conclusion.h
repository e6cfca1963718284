#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/collectives/collective_panels.h"

namespace lockstep::bench {

/// Says in plain sentences at which sizes each way is faster than Gloo, by how much and how sure
/// that is; only of ranks that had cores of their own.
std::string collective_conclusion(const std::vector<CollectivePanel>& panels);

}  // namespace lockstep::bench
