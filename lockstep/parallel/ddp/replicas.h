#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Checks that all ranks have the same tensors: number, names, types and shapes. A collective; what
/// is said of differences is the same on every rank and names rank, tensor and shapes
/// (InvalidArgument).
void check_same_on_all_ranks(
    const std::string& what, const NamedTensors& tensors, const ProcessGroup& group);

/// Copies the root's tensors into everyone's, coalesced by element type. A collective.
void broadcast_all(const std::vector<torch::Tensor>& tensors, int root, const ProcessGroup& group);

}  // namespace lockstep
