#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/types.h>

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

}  // namespace lockstep::data_parallel
