#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/weights/tensor_parts.h"
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

/// Returns a hash in hexadecimal once all ranks have shown the same; a difference is an Error that
/// names ranks. A collective.
std::string agreed_hash(std::uint64_t hash, const ProcessGroup& world);

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

/// Writes the weights that the ranks of a group share, or each of several copies does, whole, into
/// a safetensors file of its first rank, tensor by tensor: no rank ever has more than one of them
/// whole. `file` is not looked at elsewhere. See Replica::ranges() about `state` and `ranges`.
///
/// What the first rank cannot write is thrown there, once the others have given it all; the file is
/// complete or as it was. A collective.
void save_shared_weights(const nn::NamedTensors& state, const TensorRanges& ranges,
    const ProcessGroup& group, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata);

/// Does the opposite: copies into the tensors of each rank what it holds of the weights in a file
/// of the first rank. What that cannot read, or does not fit, is a DataError on all ranks, and
/// nothing is changed unless another program changes the file meanwhile. A collective.
void load_shared_weights(const nn::NamedTensors& state, const TensorRanges& ranges,
    const ProcessGroup& group, const std::filesystem::path& file);

}  // namespace lockstep
