#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/reducer.h"

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

/// Is what the replicas of a model have in common: of a module, of the modules of a pipeline's
/// stage, or of no module at all. A tensor may be listed under several names.
struct ReplicatedState {
  NamedTensors parameters;
  NamedTensors buffers;

  /// Adds the parameters and buffers of a module, their names behind the prefix.
  void add(const torch::nn::Module& module, const std::string& prefix = "");
};

/// Keeps the replicas of a model alike: what DistributedDataParallel does, without the module's
/// type.
class GradientSync {
 public:
  /// Gives every rank rank 0's state. Throws InvalidArgument on every rank if the parameters differ
  /// in number, name, type or shape. A collective.
  GradientSync(
      const torch::nn::Module& module,
      ProcessGroup group,
      const DistributedDataParallelOptions& options);

  /// As above, of a state that is not one module's.
  ///
  ///     lockstep::ReplicatedState state;
  ///     for (auto& layer : stage) state.add(*layer, layer->name() + ".");
  ///     lockstep::GradientSync sync(state, replicas, options);
  GradientSync(
      const ReplicatedState& state,
      ProcessGroup group,
      const DistributedDataParallelOptions& options);

  /// Lets the buffers follow rank 0 if this forward is one of training. A collective then.
  void before_forward(bool training);

  /// Averages the gradients that have accumulated while synchronisation was off, without a
  /// backward. A collective.
  ///
  ///     sync.reducer().set_synchronised(false);
  ///     ...                                      // backward of every micro-batch
  ///     sync.reduce_accumulated();
  void reduce_accumulated() { reducer_.reduce_accumulated(); }

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
