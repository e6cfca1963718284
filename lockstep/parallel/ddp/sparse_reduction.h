#pragma once

#include <functional>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/comm_hook.h"

namespace lockstep {

/// Begins to add up a sparse gradient over all ranks and to divide it by the divisor; `receive`
/// gets the coalesced result, the same bits on all ranks.
///
/// The numbers of rows may differ between the ranks; a rank that has none passes an undefined
/// gradient. `like` has shape, type and device. Three collectives: how many rows each rank has,
/// their indices, their values.
CommStep reduce_sparse(const torch::Tensor& gradient, const torch::Tensor& like,
    const ProcessGroup& group, int divisor, const std::function<void(torch::Tensor)>& receive);

}  // namespace lockstep
