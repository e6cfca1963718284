#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Hashes the bytes of tensors in order; it finds slips and drift, it is no defence against
/// forgery.
std::uint64_t parameters_hash(const std::vector<torch::Tensor>& parameters);

/// Gives the hash in hexadecimal once all ranks have shown the same; a difference is an Error that
/// names ranks. A collective.
std::string agreed_parameters_hash(
    const std::vector<torch::Tensor>& parameters, const ProcessGroup& world);

}  // namespace lockstep
