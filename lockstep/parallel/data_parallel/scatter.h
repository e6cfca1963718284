#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/data_parallel/replica.h"

namespace lockstep::data_parallel {

/// Divides a batch as torch.chunk does: pieces of ceil(batch / count) samples, the last one smaller
/// or missing. An empty batch is one empty piece.
///
///     chunk_sizes(7, 3)   // 3 3 1
///     chunk_sizes(5, 4)   // 2 2 1
std::vector<std::int64_t> chunk_sizes(std::int64_t batch, std::size_t count);

/// The division of a batch's tensors over replicas.
struct Division {
  std::size_t pieces = 0;  ///< at least 1: how many replicas have something to do
  /// Samples of each piece, for each tensor; empty for an undefined one, which every replica gets.
  std::vector<std::vector<std::int64_t>> sizes = {};
};

/// Divides the first dimension of each tensor. Without a tensor all `count` replicas get the same.
/// Throws InvalidArgument for a tensor without dimensions, and if the tensors differ in the number
/// of their pieces.
Division divide_batch(const std::vector<torch::Tensor>& tensors, std::size_t count);

/// Concatenates the replicas' results on a device: along the first dimension, or single numbers to
/// a vector. Throws InvalidArgument if only some replicas gave a defined tensor.
torch::Tensor gather(const std::vector<torch::Tensor>& parts, torch::Device device);

/// Returns copies on a device of tensors that are on another accelerator: those of one type come
/// over in one copy, since each has its price. Others are returned as they are.
std::vector<torch::Tensor> copied_together(
    const std::vector<torch::Tensor>& tensors, torch::Device device);

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
/// sums are divided over the replicas' threads.
std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> gradients,
    const std::vector<torch::Device>& devices, ReplicaThreads& threads);

}  // namespace lockstep::data_parallel
