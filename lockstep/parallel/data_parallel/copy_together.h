#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep::data_parallel {

/// Returns copies on a device of tensors that are on another accelerator: those of one type come
/// over in one copy, since each has its price. Others are returned as they are.
std::vector<torch::Tensor> copied_together(
    const std::vector<torch::Tensor>& tensors, torch::Device device);

}  // namespace lockstep::data_parallel
