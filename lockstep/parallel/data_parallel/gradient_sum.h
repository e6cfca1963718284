#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/data_parallel/replica_threads.h"

namespace lockstep::data_parallel {

/// A stretch of the elements of one tensor of a list.
struct Stretch {
  std::size_t tensor = 0;
  std::int64_t first = 0;
  std::int64_t size = 0;

  bool operator==(const Stretch&) const = default;
};

/// Divides the elements of tensors of these sizes into `shares` parts of nearly equal size.
///
///     divide_elements({3, 5}, 2)   // {0: 0-2, 1: 0} and {1: 1-4}
std::vector<std::vector<Stretch>> divide_elements(
    const std::vector<std::int64_t>& sizes, std::size_t shares);

/// Adds up `gradients[replica][tensor]` over the replicas, always in their order, and leaves the
/// inputs' memory to the sums. A tensor for which no replica has a gradient stays undefined. Large
/// sums are divided over the threads of the threads.
std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> gradients,
    const std::vector<torch::Device>& devices, ReplicaThreads& threads);

}  // namespace lockstep::data_parallel
