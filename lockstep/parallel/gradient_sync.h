#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/reducer.h"

namespace lockstep {

/// Are the options of DistributedDataParallel, equal on all ranks.
struct DistributedDataParallelOptions {
  /// Is the size from which a bucket of gradients is reduced; smaller overlaps earlier, larger
  /// costs less per byte.
  TORCH_ARG(std::int64_t, bucket_bytes) = std::int64_t{25} << 20;
  /// Is the size of the first bucket, small so that the first reduction starts early.
  TORCH_ARG(std::int64_t, first_bucket_bytes) = std::int64_t{1} << 20;
  /// Lets a backward pass leave parameters out, other ones on other ranks. What some rank used is
  /// averaged over all; what none used keeps an undefined gradient. Costs one small collective per
  /// backward.
  TORCH_ARG(bool, find_unused_parameters) = false;
  /// Lets the buffers (running statistics) follow rank 0 before each forward in training.
  TORCH_ARG(bool, broadcast_buffers) = true;
};

/// Keeps the replicas of a module alike: what DistributedDataParallel does, without the module's
/// type.
class GradientSync {
 public:
  GradientSync(
      torch::nn::Module& module, ProcessGroup group, const DistributedDataParallelOptions& options);

  void before_forward(bool training);

  Reducer& reducer() { return reducer_; }

 private:
  ProcessGroup group_;
  std::vector<torch::Tensor> buffers_;  // empty if they are not broadcast
  Reducer reducer_;
};

/// Suspends the averaging of gradients while it lives.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientSync> sync);
  ~NoSync();
  NoSync(NoSync&&) = default;
  NoSync& operator=(NoSync&&) = delete;

 private:
  std::shared_ptr<GradientSync> sync_;
  bool before_;
};

}  // namespace lockstep
