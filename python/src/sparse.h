#pragma once

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::python {

/// Returns the sum of the sparse tensors (COO) of all ranks, coalesced, the same bits on each. They
/// must be of one shape and type. A collective.
at::Tensor sum_of_sparse(const ProcessGroup& group, const at::Tensor& tensor);

}  // namespace lockstep::python
