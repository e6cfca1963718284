#pragma once

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Brings the tensors of a model in stages together on the first rank of a group, stage by stage;
/// the others get nothing. What is this rank's own is not copied. A collective.
nn::NamedTensors gathered_state(const nn::NamedTensors& own, const ProcessGroup& stages);

}  // namespace lockstep
