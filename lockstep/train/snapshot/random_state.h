#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Returns the state of this process's default generators as bytes (uint8): `generator/cpu`, and of
/// each listed CUDA device `generator/cuda:0`. Ranks that are threads share the generators.
nn::NamedTensors random_state(const std::vector<torch::Device>& devices = {});

/// Sets the default generators of the CPU and of the listed devices; other entries are left alone.
///
/// Returns the devices for which nothing was saved; their generators stay as they are. A state that
/// this LibTorch's generators do not take is a DataError.
std::vector<torch::Device> restore_random_state(
    const nn::NamedTensors& state, const std::vector<torch::Device>& devices = {});

}  // namespace lockstep
