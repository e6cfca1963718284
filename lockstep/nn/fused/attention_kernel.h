#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Scores of some queries by the keys up to the last of them, [queries, keys]: a query sees the
/// keys up to its own place.
struct AttentionBlock {
  Range queries;
  float scale;       ///< above 0
  float* weights;    ///< [queries, queries.end], scores at first
  float* gradients;  ///< of the weights, same sizes; of the scores at last
};

/// One build of causal attention's softmax; the places that a query does not see become 0.
struct AttentionKernel {
  const char* name;
  /// weights = softmax(scale * scores)
  void (*softmax)(const AttentionBlock& block);
  /// gradients = scale * weights * (gradients - sum(weights * gradients))
  void (*backward)(const AttentionBlock& block);
};

const AttentionKernel& attention_plain();
const AttentionKernel& attention_avx2();
const AttentionKernel& attention_avx512();

}  // namespace lockstep::nn::fused
