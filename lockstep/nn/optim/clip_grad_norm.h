#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

/// Scales all gradients together so that their Euclidean norm is at most `max_norm`; gives the norm
/// before.
///
/// Parameters without gradient are skipped. A norm that is not finite is returned as it is and
/// spreads into the gradients, so that a GradScaler or the caller can see it.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm);

}  // namespace lockstep::nn
