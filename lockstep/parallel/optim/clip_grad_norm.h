#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// The reaction of clip_grad_norm to a norm that is infinite or not a number.
enum class NonFiniteNorm {
  kSpread,  ///< scales all the same: a GradScaler or the caller sees it in the gradients
  kThrow    ///< throws DivergedError on every rank before any gradient is changed
};

/// Scales the gradients of all ranks together so that their Euclidean norm is at most `max_norm`;
/// returns the norm before, the same on all ranks.
///
/// The group holds the ranks that have different parameters: the stages of one pipeline, the owners
/// of shards. Replicas, whose gradients are equal, must not be in it, or they are counted again. A
/// parameter that is listed twice counts once, one without gradient not at all. A collective, also
/// for a rank without parameters. Throws InvalidArgument unless max_norm is positive.
///
///     auto norm = clip_grad_norm(net->parameters(), 1.0);            // in one process
///     auto norm = clip_grad_norm(stage.parameters(), 1.0, stages);
double clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm,
    const ProcessGroup& group = ProcessGroup(), NonFiniteNorm non_finite = NonFiniteNorm::kSpread);

/// Does the same without telling the norm, so that the host does not wait for the device, on which
/// the ranks add it up: one that is NaN or infinite spreads.
void clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm,
    const ProcessGroup& group, torch::Device device);

}  // namespace lockstep
