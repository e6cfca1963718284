#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/collectives/collective_panels.h"

namespace lockstep::bench {

/// Answers at which sizes shared memory is faster than Gloo, by how much and how sure that is; only
/// of ranks that had cores of their own.
page::Conclusion collective_conclusion(const std::vector<CollectivePanel>& panels);

}  // namespace lockstep::bench
