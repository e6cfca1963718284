#pragma once

#include <functional>
#include <vector>

#include <c10/core/Device.h>
#include <torch/nn/module.h>

namespace lockstep {

/// Runs a body and puts back what it changed, also if it throws: values of parameters and buffers,
/// the modules' modes, the random numbers of the CPU and of the device.
void with_preserved_state(const std::vector<torch::nn::Module*>& modules, const c10::Device& device,
    const std::function<void()>& body);

}  // namespace lockstep
