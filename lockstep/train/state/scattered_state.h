#pragma once

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Copies into the tensors of each rank those of the same names that the first rank of both groups
/// has of the whole model: what gathered_state() brought together, or the like. `all` is not looked
/// at elsewhere. A collective of both groups.
void scatter_state(const nn::NamedTensors& all, const nn::NamedTensors& own,
    const ProcessGroup& stages, const ProcessGroup& replicas);

}  // namespace lockstep
