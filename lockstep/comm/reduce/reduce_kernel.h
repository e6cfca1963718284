#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::reduce {

/// The element types that the host's collectives can reduce.
enum class Element { kFloat, kDouble, kHalf, kBFloat16, kInt8, kUInt8, kInt16, kInt32, kInt64 };

/// A loop's use of the caches.
struct Traffic {
  /// Bytes that inputs are asked for ahead: the processor itself stops at the end of each page.
  std::size_t ahead = 0;
  /// Writes past the caches where there is one output, aligned to a cache line: for results that
  /// the caches would not keep until they are read.
  bool streams = false;
};

/// One reduction: for each i, every outputs[o][i] becomes op over r of inputs[r][i].
///
/// The inputs are combined in the order of their index, half types in fp32 and rounded once, to
/// nearest even; so the result is the same on every rank. An output may be one of the inputs.
struct Job {
  Element element;
  ReduceOp op;
  const void* const* inputs;
  int input_count;
  void* const* outputs;
  int output_count;
  std::size_t elements;
  Traffic traffic = {};
};

/// One build of the loops; all builds give the same bits.
using Kernel = void (*)(const Job&);

void reduce_plain(const Job& job);
void reduce_avx2(const Job& job);
void reduce_avx512(const Job& job);

/// Returns the fastest kernel of simd::instructions_in_use().
Kernel best_kernel();

}  // namespace lockstep::reduce
