#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// Gives the sizes of the micro-batches of a batch, as tensor_split cuts it, empty pieces left out:
/// 5 in 4 is 2 1 1 1, 2 in 4 is 1 1. Throws InvalidArgument for chunks < 1 or an empty batch.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks);

/// Cuts a batch [N, ...] into its micro-batches, as views.
std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes);

}  // namespace lockstep
