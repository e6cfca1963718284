#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/arg.h>
#include <torch/types.h>

#include "lockstep/parallel/ddp/comm_hook.h"

namespace lockstep {

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

}  // namespace lockstep
