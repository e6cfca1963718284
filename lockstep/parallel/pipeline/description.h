#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/pipeline/payload.h"

namespace lockstep {

/// Describes address, form, types and shapes of a payload in numbers, to be sent before its
/// tensors.
std::vector<std::int64_t> describe(const Address& address, const Payload& payload);

/// Reads a description, and makes the tensors that the payload's values are to be received into, on
/// a device. Throws CommError if the numbers are not a description.
std::pair<Address, Payload> read_description(
    const std::vector<std::int64_t>& numbers, torch::Device device);

/// Gives the root's tensor to all ranks of a group, who need not know its type and shape. A
/// collective; the tensor is looked at on the root alone.
torch::Tensor broadcast_described(const torch::Tensor& tensor, int root, const ProcessGroup& group);

}  // namespace lockstep
