#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Copies the values of a tensor into another one of its sizes, which gets no new version where
/// both lie alike in the host's memory: there it does without LibTorch's operators, which would
/// take longer than the copies of the many small tensors of a step.
void copy_values(const at::Tensor& from, const at::Tensor& to);

}  // namespace lockstep
