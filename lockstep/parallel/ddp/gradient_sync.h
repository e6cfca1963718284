#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/join.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {

/// The options of DistributedDataParallel, equal on all ranks.
struct DistributedDataParallelOptions {
  /// The size from which a bucket of gradients is reduced; smaller overlaps earlier, larger
  /// costs less per byte.
  TORCH_ARG(std::int64_t, bucket_bytes) = std::int64_t{25} << 20;
  /// The size of the first bucket, small so that the first reduction starts early.
  TORCH_ARG(std::int64_t, first_bucket_bytes) = std::int64_t{1} << 20;
  /// Lets a backward pass leave parameters out, different ones on each rank. What some rank used is
  /// averaged over all; what none used keeps an undefined gradient. Costs a small collective a
  /// pass.
  TORCH_ARG(bool, find_unused_parameters) = false;
  /// Promises that every backward of a rank uses the same parameters as its first, equally often.
  /// Then parameters may be left out, and used several times in one backward (by checkpointed
  /// parts), without a collective per pass. A pass that differs is an error.
  TORCH_ARG(bool, static_graph) = false;
  /// Lets the buffers (running statistics) follow rank 0 before each forward in training but those
  /// that follow one under no_sync().
  TORCH_ARG(bool, broadcast_buffers) = true;
  /// Lets the module's batch norm layers normalise by the batches of all ranks in training, see
  /// SyncBatchNormScope. Costs two collectives a layer and step.
  TORCH_ARG(bool, sync_batch_norm) = false;
  /// Names parameters and buffers that each rank keeps to itself: not compared, not broadcast,
  /// their gradients not averaged. Names or shell patterns: `head.*`, `*.running_mean`.
  TORCH_ARG(std::vector<std::string>, ignored) = {};
  /// Averages buckets in another way than by all-reduce, see CommHook.
  TORCH_ARG(CommHook, comm_hook) = nullptr;
};

/// The means to keep the replicas of a model equal: DistributedDataParallel without the module's
/// type.
class GradientSync {
 public:
  /// Gives every rank rank 0's state. Throws InvalidArgument on every rank if the parameters differ
  /// in number, name, type, shape, or whether they require gradients. A collective.
  GradientSync(const torch::nn::Module& module, ProcessGroup group,
      const DistributedDataParallelOptions& options);

  /// As above, of a state that is not one module's.
  ///
  ///     lockstep::ReplicatedState state;
  ///     for (auto& layer : stage) state.add(*layer, layer->name() + ".");
  ///     lockstep::GradientSync sync(state, replicas, options);
  GradientSync(const ReplicatedState& state, ProcessGroup group,
      const DistributedDataParallelOptions& options);

  /// Copies rank 0's buffers to all if this is a forward in training, and not one that adds to the
  /// gradients of a forward before it: as PyTorch, if the forward before was synchronised. A
  /// collective then. Graphs that saved a buffer stay usable, as with LibTorch's batch norm, which
  /// changes its running statistics without a new version too.
  void before_forward(bool training);

  /// Throws InvalidArgument that says what has changed, and tells the other ranks, if the state is
  /// not that of construction any more (see StateRecord): it would differ between the ranks.
  void check_unchanged(ReplicatedState now) const;

  /// Does both for a module, the latter if gradients are on.
  void before_forward(const torch::nn::Module& module);

  /// Makes batch norm layers normalise by the batches of all ranks while the returned scope exists,
  /// if the options ask for it and this is a forward in training.
  std::unique_ptr<SyncBatchNormScope> synchronised_batch_norm(bool training) const;

  /// Sees the outputs of forward, so that the pass ends with the backward from them even if parts
  /// of it are checkpointed. May be left out where none are.
  void after_forward(const std::vector<torch::Tensor>& outputs) {
    reducer_.expect_backward(outputs);
  }

  /// Averages the gradients that have accumulated while synchronisation was off, without a
  /// backward. A collective.
  ///
  ///     sync.reducer().set_synchronised(false);
  ///     ...                                      // backward of every micro-batch
  ///     sync.reduce_accumulated();
  void reduce_accumulated() {
    reducer_.reduce_accumulated();
    was_synchronised_ = true;
  }

  /// Runs the body, in which the ranks may make unequal numbers of passes, then copies the state of
  /// the one that ended last to all. A collective. See DistributedDataParallel::join.
  void join(const std::function<void(Join&)>& body, const JoinOptions& options);

  Reducer& reducer() { return reducer_; }

 private:
  GradientSync(ProcessGroup group, const ReplicatedState& kept,
      const DistributedDataParallelOptions& options);

  void follow_buffers(int root) const;
  void add_to(Join& join, const JoinOptions& options);
  torch::Device device() const;

  ProcessGroup group_;
  std::optional<ProcessGroup> norm_group_;  // its own: it must not disturb the buckets' order
  DistributedDataParallelOptions options_;
  StateRecord record_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> buffers_;  // empty if they are not broadcast
  Join* join_ = nullptr;                // while join() runs
  std::size_t forward_ = 0;             // its number there
  bool was_synchronised_ = true;        // no gradients of a forward before wait to be added to
  Reducer reducer_;
};

/// Suspends the averaging of gradients while it exists.
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
