#include "lockstep/parallel/ddp/comm_hook.h"

namespace lockstep {
namespace {

// Divides before the cast: the sum over many ranks must fit into the narrow type.
CommStep compress(const GradientBucket& bucket, at::ScalarType type) {
  if (c10::elementSize(bucket.memory.scalar_type()) <= c10::elementSize(type))
    return all_reduce_hook(bucket);
  const torch::Tensor narrow = bucket.memory.div(bucket.group.size()).to(type);
  return {bucket.group.all_reduce(narrow), [memory = bucket.memory, narrow] {
            memory.copy_(narrow);
            return CommStep{};
          }};
}

}  // namespace

CommStep all_reduce_hook(const GradientBucket& bucket) {
  return {bucket.group.all_reduce(bucket.memory, ReduceOp::kMean)};
}

CommStep fp16_compress_hook(const GradientBucket& bucket) { return compress(bucket, torch::kHalf); }

CommStep bf16_compress_hook(const GradientBucket& bucket) {
  return compress(bucket, torch::kBFloat16);
}

}  // namespace lockstep
