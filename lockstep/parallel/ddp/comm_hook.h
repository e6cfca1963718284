#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"

namespace lockstep {

/// A bucket of gradients that is to be averaged over the ranks of a group.
struct GradientBucket {
  std::size_t index = 0;  ///< in the order in which buckets are reduced; may differ after a rebuild
  bool is_last = false;   ///< in this backward pass
  torch::Tensor memory;   ///< all gradients one behind the other, one-dimensional
  std::vector<torch::Tensor> gradients;   ///< views of the memory, each in its parameter's shape
  std::vector<torch::Tensor> parameters;  ///< in the same order
  ProcessGroup group;
};

/// A step of a communication hook: the work under way and the step after it.
///
/// The reducer waits for the work, then calls `next`, if there is one, and continues with its
/// result. When no `next` is left the bucket's memory must hold the average, the same on all ranks.
/// `next` is called in one order on all ranks, so it may begin more collectives.
struct CommStep {
  Work work = {};
  std::function<CommStep()> next = {};
};

/// Averages a bucket in another way than by all-reduce. It is called as soon as the bucket is full,
/// in the order of the buckets; what it begins overlaps with backward, what its `next` does comes
/// at the end. Every rank must have the same hook.
///
///     const auto halved = [](const lockstep::GradientBucket& bucket) -> lockstep::CommStep {
///       bucket.memory.div_(2 * bucket.group.size());
///       return {bucket.group.all_reduce(bucket.memory)};
///     };
using CommHook = std::function<CommStep(const GradientBucket&)>;

/// Averages as the reducer does without a hook; to build others on.
CommStep all_reduce_hook(const GradientBucket& bucket);

/// Sends gradients as fp16: half the bytes of fp32. They are divided by the number of ranks first;
/// what then exceeds 65504 becomes infinite. PyTorch's hook narrows first: where the quotient is
/// subnormal (below 6e-5), or the number of ranks no power of two, it rounds once more, and results
/// differ in the last digits of fp16.
CommStep fp16_compress_hook(const GradientBucket& bucket);

/// Sends gradients as bf16: half the bytes of fp32, its range, and 8 bits of precision.
CommStep bf16_compress_hook(const GradientBucket& bucket);

}  // namespace lockstep
