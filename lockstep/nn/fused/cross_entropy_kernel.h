#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Scores [rows, classes] in one piece, and the label of each row.
struct CrossEntropyJob {
  Element element;  ///< of the scores
  void* scores;     ///< become the gradients of the losses' sum
  std::int64_t classes;
  const std::int64_t* labels;
  std::int64_t ignored;  ///< a label whose row has neither loss nor gradient
  float smoothing;
  float* losses;  ///< [rows]
};

/// One build of Note [Cross entropy in place].
struct CrossEntropyKernel {
  const char* name;
  void (*replace)(const CrossEntropyJob& job, Range rows);
};

const CrossEntropyKernel& cross_entropy_plain();
const CrossEntropyKernel& cross_entropy_avx2();
const CrossEntropyKernel& cross_entropy_avx512();

}  // namespace lockstep::nn::fused
