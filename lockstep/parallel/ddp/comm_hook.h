#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/arg.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/work.h"

namespace lockstep {

/// A bucket of gradients that is to be averaged over the ranks of a group.
struct GradientBucket {
  std::size_t index = 0;  ///< in the order in which buckets are reduced; may differ after a rebuild
  bool is_last = false;   ///< in this backward pass
  /// All gradients one behind the other, one-dimensional. Each begins at a multiple of 64 bytes,
  /// see Note [Alignment]; between them are zeros.
  torch::Tensor memory;
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

/// The options of PowerSgd, equal on all ranks.
struct PowerSgdOptions {
  /// The rank of the approximation; 1 to 4 serve most models.
  TORCH_ARG(std::int64_t, rank) = 1;
  /// How many backward passes are averaged exactly before the first is compressed: early
  /// gradients suffer most. A tenth of the training is a start.
  TORCH_ARG(std::int64_t, start_step) = 1000;
  /// By how much the elements of a gradient must shrink to be compressed at all.
  TORCH_ARG(double, min_compression_rate) = 2;
  /// Adds what compression lost to the next gradient. Costs memory of the gradients' size.
  TORCH_ARG(bool, error_feedback) = true;
  /// Starts from the previous step's approximation instead of a random one.
  TORCH_ARG(bool, warm_start) = true;
  /// Returns on a device what the loss is multiplied by, a scalar: what was lost under one scale
  /// comes back under another. Needed with a scaler:
  ///
  ///     .loss_scale([&](const torch::Device& device) { return scaler.scale_on(device); })
  TORCH_ARG(std::function<torch::Tensor(const torch::Device&)>, loss_scale) = nullptr;
  /// Seeds the random start; the same on all ranks.
  TORCH_ARG(std::uint64_t, seed) = 0;
};

/// A hook that averages gradients by low-rank approximation: PowerSGD (Vogels, Karimireddy, Jaggi
/// 2019), after PyTorch's powerSGD_hook.
///
/// A gradient M of n x m is sent as P (n x rank) and Q (m x rank): P = orthogonal basis of the mean
/// of M Q, then Q = the mean of M^T P, and the result is P Q^T. What has fewer than two dimensions
/// or would not shrink enough is averaged exactly. Three collectives a bucket. The memory of a
/// parameter (its Q, what was lost) belongs to the parameter, so it outlives a rebuild of buckets.
/// A pass whose averages have an Inf or NaN, which a scaler leaves out, leaves it as it was.
///
/// Each rank makes its own; copies share their state.
///
///     model.register_comm_hook(lockstep::PowerSgd(lockstep::PowerSgdOptions().rank(2)));
class PowerSgd {
 public:
  /// Throws InvalidArgument if an option is out of range.
  explicit PowerSgd(const PowerSgdOptions& options);

  /// Begins to average a bucket, see CommHook.
  CommStep operator()(const GradientBucket& bucket) const;

  /// Returns how many elements there were for each one sent since compression began; 1 before.
  double compression_rate() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Returns an orthonormal basis of the columns of a matrix of n x r, r <= n, also if they are
/// dependent. Half types are computed in fp32.
torch::Tensor orthonormal_basis(const torch::Tensor& matrix);

/// Begins to add up a sparse gradient over all ranks and to divide it by the divisor; `receive`
/// gets the coalesced result, the same bits on all ranks.
///
/// The numbers of rows may differ between the ranks; a rank that has none passes an undefined
/// gradient. `like` has shape, type and device. Three collectives: how many rows each rank has,
/// their indices, their values.
CommStep reduce_sparse(const torch::Tensor& gradient, const torch::Tensor& like,
    const ProcessGroup& group, int divisor, const std::function<void(torch::Tensor)>& receive);

}  // namespace lockstep
