#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Scores of some queries by the keys that any of them sees, the first ones, [queries, keys]. A
/// causal query sees the keys up to its own place.
struct AttentionBlock {
  Range queries;
  std::int64_t keys;
  bool is_causal;
  float scale;          ///< above 0
  std::int64_t stride;  ///< from one row to the next, a multiple of kAttentionStride
  float* weights;       ///< [queries, keys], scores at first
  float* dropped;       ///< the weights behind their dropout, which may be the weights themselves
  float* gradients;     ///< of the weights, same sizes; of the scores at last
};

/// The longest vectors may be read and written in whole.
constexpr std::int64_t kAttentionStride = 16;

/// Rows of numbers that are added to a block's scores, or of bools, true where a key is seen.
struct AttentionMask {
  const void* rows;
  std::int64_t stride;  ///< from one row to the next
  bool is_bool;         ///< or else float
};

/// One build of attention's softmax; the places that a query does not see become 0.
struct AttentionKernel {
  const char* name;
  /// scores = scale * scores + mask, or -infinity where a mask of bool has false
  void (*mask)(const AttentionBlock& block, const AttentionMask& mask);
  /// weights = softmax(scale * scores)
  void (*softmax)(const AttentionBlock& block);
  /// gradients, of the dropped weights, = scale * (products - weights * sum(products)), where
  /// products = dropped * gradients: those of a weight that is dropped are zero
  void (*backward)(const AttentionBlock& block);
};

const AttentionKernel& attention_plain();
const AttentionKernel& attention_avx2();
const AttentionKernel& attention_avx512();

}  // namespace lockstep::nn::fused
