#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/named_state.h"

// A model as one whole, wherever its stages and replicas lie.

namespace lockstep {

/// Hashes the bytes of tensors in order; it finds slips and drift, and is no
/// defence against forgery.
///
/// A hash can be continued: `start` is that of the tensors before.
inline constexpr std::uint64_t kHashOfNothing = 0xcbf29ce484222325U;
std::uint64_t parameters_hash(
    const std::vector<torch::Tensor>& parameters, std::uint64_t start = kHashOfNothing);

/// Returns a hash as 16 hexadecimal digits.
std::string hexadecimal(std::uint64_t hash);

/// Returns the hash of a model in hexadecimal once all replicas have shown the same; a difference
/// is an Error that names ranks. Where the model is in stages, one after the other on the ranks of
/// `stages`, the hash is that of the whole. A collective of both groups.
std::string agreed_parameters_hash(const std::vector<torch::Tensor>& parameters,
    const ProcessGroup& replicas, const ProcessGroup& stages);

/// Brings the tensors of a model in stages together on the first rank of a group, stage by stage;
/// the others get nothing. What is this rank's own is not copied. A collective.
nn::NamedTensors gathered_state(const nn::NamedTensors& own, const ProcessGroup& stages);

/// Does the opposite: copies into the tensors of each rank those of the same names that the first
/// rank of both groups has of the whole model. `all` is not looked at elsewhere. A collective of
/// both groups.
void scatter_state(const nn::NamedTensors& all, const nn::NamedTensors& own,
    const ProcessGroup& stages, const ProcessGroup& replicas);

}  // namespace lockstep
