#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/place/nested.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {

/// The treatment of ranks with fewer inputs than others, equal on all ranks.
struct JoinOptions {
  /// Divides gradients by the number of all ranks to the end, so that every sample weighs the same;
  /// otherwise by the number of those that still have inputs.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;
  /// Throws UnevenInputs on all ranks as soon as one has ended. Needed where forward has
  /// other collectives, for example in SyncBatchNorm.
  TORCH_ARG(bool, throw_on_early_termination) = false;
};

/// Thrown on all ranks when some have no inputs left.
class UnevenInputs : public Error {
 public:
  using Error::Error;
};

/// A scope in which ranks may make unequal numbers of collectives: those that have ended shadow the
/// others' collectives until all have ended.
///
/// Before each collective, or group of them, every rank that takes part announces it, by one small
/// all-gather; a rank that has ended takes part in that and then does what was announced, without
/// contributing.
///
///     lockstep::Join join(world);
///     const auto total = join.add("total", [&](const auto&) {
///       world.all_reduce(torch::zeros({1})).wait();
///     });
///     for (auto& batch : mine) {
///       join.announce(total);
///       world.all_reduce(count_of(batch)).wait();
///     }
///     join.finish();
class Join {
 public:
  /// The ranks that take part, in ascending order.
  using Participants = std::vector<int>;
  /// Does the same collectives as the participants, contributing nothing.
  using Shadow = std::function<void(const Participants&)>;

  /// What is announced travels on the device, which must be one that the group carries.
  explicit Join(
      ProcessGroup group, const JoinOptions& options = {}, torch::Device device = torch::kCPU);

  /// Makes a kind of collective known and returns its number; all ranks add the same, in the same
  /// order.
  std::size_t add(std::string name, Shadow shadow);

  /// Announces what comes next to those that have ended; returns the ranks that take part. Throws
  /// UnevenInputs if some have ended and the options ask for it, Error if the ranks announce
  /// different things.
  Participants announce(std::size_t collective);

  /// Shadows the others until they have all ended. Returns the rank whose state counts, the same on
  /// all ranks: the last to end, and the highest of several. Throws UnevenInputs as announce().
  int finish();

 private:
  struct Kind {
    std::string name;
    Shadow shadow;
  };

  std::vector<std::int64_t> exchange(std::int64_t own) const;
  Participants participants(const std::vector<std::int64_t>& announced) const;

  ProcessGroup group_;
  JoinOptions options_;
  torch::Device device_;
  std::vector<Kind> kinds_;
};

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

/// A module trained on all ranks of a group: each computes on its share of the data, gradients are
/// averaged.
///
/// It is called like the module, `->` reaches the module, and `backward()` returns with the
/// gradients averaged over all ranks. At construction every rank takes rank 0's parameters and
/// buffers; in training the buffers follow rank 0 before each forward, but for those that follow
/// one under no_sync(). The module's names get no prefix, so what is saved is the module's.
///
/// What is averaged is settled at construction: a forward throws InvalidArgument if a parameter or
/// buffer was added, removed or replaced since then, or a parameter was unfrozen or got another
/// type, shape or device. Wrap the module again after such a change.
///
///     lockstep::DistributedDataParallel model(net, world);
///     loss_of(model(images), labels).backward();
///     optimizer.step();
///
/// `Holder` is a module holder (torch::nn::Sequential, or one of TORCH_MODULE) or a std::shared_ptr
/// to a module.
template <typename Holder>
class DistributedDataParallel {
 public:
  /// Throws InvalidArgument on every rank if the parameters differ in number, name, type, shape, or
  /// whether they require gradients.
  DistributedDataParallel(
      Holder module, ProcessGroup group, DistributedDataParallelOptions options = {})
      : module_(std::move(module)),
        sync_(std::make_shared<GradientSync>(*module_, std::move(group), options)) {}

  /// Computes the module's forward. Its output may be nested (Note [Nested values]).
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    sync_->before_forward(*module_);
    const auto scope = sync_->synchronised_batch_norm(module_->is_training());
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    sync_->after_forward(lockstep::flatten(output));
    return output;
  }

  auto operator->() { return &*module_; }
  auto operator->() const { return &*module_; }
  auto& operator*() { return *module_; }
  auto& operator*() const { return *module_; }

  /// Lets gradients accumulate locally for as long as the returned value lives; the first backward
  /// after it averages the sum.
  ///
  ///     { auto accumulate = model.no_sync(); loss_of(model(a)).backward(); }
  ///     loss_of(model(b)).backward();
  [[nodiscard]] NoSync no_sync() { return NoSync(sync_); }

  /// Averages what has accumulated under no_sync(), without a backward. A collective.
  void reduce_accumulated() { sync_->reduce_accumulated(); }

  /// Runs a body in which the ranks may make unequal numbers of passes. One that has ended takes
  /// part in the others' averages with zeros, which overwrite its gradients; when all have ended,
  /// all get the parameters and buffers of the last one (optimizers are each rank's own). Passes
  /// must be alike on all ranks that still make them. A collective.
  ///
  ///     model.join([&] {
  ///       for (auto& batch : mine) { ... }
  ///     });
  ///
  /// A body that takes a Join& may add more collectives there. Throws UnevenInputs on all
  /// ranks if the options ask for it.
  template <typename Body>
  void join(Body body, const JoinOptions& options = {}) {
    sync_->join(
        [&](Join& join) {
          if constexpr (std::invocable<Body, Join&>) {
            body(join);
          } else {
            body();
          }
        },
        options);
  }

  /// Averages in another way than by all-reduce from now on, see CommHook. Throws InvalidArgument
  /// if there is a hook already.
  void register_comm_hook(CommHook hook) { sync_->reducer().register_comm_hook(std::move(hook)); }

  /// Returns how many bytes went in how many buckets, and what share of the time was hidden.
  ReducerReport report() const { return sync_->reducer().report(); }

  /// Returns how long backward has waited for other ranks and reduced gradients so far.
  double communication_seconds() const { return sync_->reducer().communication_seconds(); }

  /// Returns the reducer, for reports and tests.
  const Reducer& reducer() const { return sync_->reducer(); }

 private:
  Holder module_;
  std::shared_ptr<GradientSync> sync_;
};

}  // namespace lockstep
