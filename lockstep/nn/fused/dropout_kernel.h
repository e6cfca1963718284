#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Values to drop or to scale. Which are dropped depends on the seed and their place alone.
struct DropoutJob {
  std::uint64_t seed;
  std::uint32_t drop_below;  ///< of the 2^32 numbers that a place may draw
  float scale;
  const float* inputs;
  float* outputs;
  std::int64_t blocks_before = 0;  ///< the place of the first value, in blocks
};

/// One build of Note [Dropout]. Ranges are of blocks of kDropoutBlock values, of `count` in all.
struct DropoutKernel {
  const char* name;
  void (*drop)(const DropoutJob& job, Range blocks, std::int64_t count);
};

constexpr std::int64_t kDropoutBlock = 32;

const DropoutKernel& dropout_plain();
const DropoutKernel& dropout_avx2();
const DropoutKernel& dropout_avx512();

}  // namespace lockstep::nn::fused
