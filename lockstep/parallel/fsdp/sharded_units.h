#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/gradient_hooks.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/fsdp/flat_parameter.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/schedule/partition.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {

/// The options of FullyShardedDataParallel, equal on all ranks.
struct FullyShardedDataParallelOptions {
  /// The size from which adjacent layers of a chain are a unit, which is gathered at once: smaller
  /// takes less memory, larger costs less per byte.
  TORCH_ARG(std::int64_t, unit_bytes) = std::int64_t{1} << 20;
  TORCH_ARG(Reshard, reshard) = Reshard::kAfterForward;
  /// Computes each layer of a chain again in backward, see checkpoint().
  TORCH_ARG(bool, checkpoint) = false;
  /// How many copies of the model there are, each shared by ranks that follow one another, as those
  /// of a host do (HSDP): gathers stay within a copy, and only the parts' gradients are averaged
  /// over all.
  TORCH_ARG(int, replicas) = 1;
  /// Under autocast, gathers the parameters of modules of which this holds, and which no other
  /// module has, in the shorter type: Note [Gathers in a shorter type]. Usually autocast_casts.
  TORCH_ARG(std::function<bool(const torch::nn::Module&)>, casts) = nullptr;
  /// Sends gradients as fp16 or bf16, see fp16_compress_hook() and bf16_compress_hook().
  TORCH_ARG(std::optional<at::ScalarType>, gradient_type) = {};
  /// Gives parameters their first values, on rank 0, before they are divided: some at a time, with
  /// the module's names. So a model of empty tensors, which take no memory before they are written,
  /// is made that no rank could hold.
  TORCH_ARG(std::function<void(const NamedTensors&)>, param_init_fn) = nullptr;
  /// As those of DistributedDataParallel.
  TORCH_ARG(bool, broadcast_buffers) = true;
  TORCH_ARG(bool, sync_batch_norm) = false;
};

/// The memory of full sharding on this rank.
struct ShardingReport {
  std::size_t units = 0;
  std::int64_t bytes_of_parts = 0;     ///< of parameters, always there
  std::int64_t peak_of_wholes = 0;     ///< bytes of whole parameters at once
  std::int64_t peak_of_gradients = 0;  ///< bytes of whole gradients at once
  std::int64_t gathers = 0;            ///< that have begun so far
};

/// The parameters of a model in units, of which at most two are whole at a time: the one that
/// computes and the one that comes next. FullyShardedDataParallel without the module's type.
///
/// Note [Whole units]
/// `hold(now, next)` is all there is: what neither reads is released, what they read is gathered,
/// and for the first it is waited for. Forward calls it before each unit, and so does backward,
/// from a hook on the unit's outputs. Backward reads all of a unit but embeddings, which take the
/// numbers of their rows, and nothing of one that it does not reach.
///
///     forward   hold(0,1) | hold(1,2) | hold(2,-)     backward   hold(2,1) | hold(1,0) | hold(0,-)
///
/// Autograd takes what is ready in the reverse order of forward, so it has done with a unit when it
/// comes to the outputs of one before; what a unit keeps for a later one (Stash) changes nothing
/// about that. Then the unit's gradients are complete, too, and are averaged. A tied parameter, or
/// one of a layer that is used twice, lies with those that the same units use; its gradient is
/// complete when backward has done with the first of them. A unit that hands on a parameter, such
/// as an embedding whose weight is the head's too, makes all later ones use it.
///
/// Note [Parameters that are handed on]
/// Each later unit gets what is handed on as a tensor of its own, whose gradient ends there
/// (HandedOn) and is averaged at once if nothing else is gathered with it. Otherwise the whole
/// gradient of an embedding would go back through all units, from the head's to the first.
///
/// Note [Order of exchanges]
/// All ranks compute the same units in the same order, by the same operators or kernels of ours for
/// them, and thus make the same collectives in the same order, that of memory for the group among
/// them (ProcessGroup::empty); a rank that does otherwise is told by the group, or by the time
/// limit. On devices this is one order over a copy's group and that of the replicas: so the latter
/// are not polled.
///
/// Note [Streams of a pass]
/// On an accelerator the same memory is used by forward, backward and collectives. Nodes of
/// autograd run on the streams of their forward, accumulation on that of the parameter's first use,
/// and the end of a pass on that of the thread which comes last: with checkpoints, LibTorch knows
/// of no gradient that the caller's stream must wait for. So each waits for the one before.
class ShardedUnits : public std::enable_shared_from_this<ShardedUnits> {
 public:
  /// The parameters that a unit uses, under their names.
  using Units = std::vector<NamedTensors>;

  /// Takes rank 0's state and leaves each rank its parts. Throws InvalidArgument on every rank if
  /// the tensors differ in number, name, type or shape. A collective.
  ShardedUnits(const torch::nn::Module& module, const Units& units, ProcessGroup group,
      const FullyShardedDataParallelOptions& options);
  ~ShardedUnits();
  ShardedUnits(const ShardedUnits&) = delete;
  ShardedUnits& operator=(const ShardedUnits&) = delete;

  /// Begins a forward of the module. A collective.
  void begin_forward(const torch::nn::Module& module);
  /// Makes a unit's parameters whole. A collective.
  void enter_forward(std::size_t unit, const std::vector<torch::Tensor>& inputs);
  /// Sees a unit's outputs, so that backward from them makes it whole again; changes those that are
  /// handed on, Note [Parameters that are handed on].
  void leave_forward(std::size_t unit, std::vector<torch::Tensor>& outputs);
  void end_forward();
  /// Makes the collectives of a forward without gradients, and computes nothing.
  void join_forward(const torch::nn::Module& module);

  /// Makes batch norm layers normalise by the batches of all ranks while the returned scope exists,
  /// if the options ask for it and this is a forward in training.
  std::unique_ptr<SyncBatchNormScope> synchronised_batch_norm(bool training) const;

  /// Lets autocast find what was gathered for it while the returned scope exists.
  std::unique_ptr<OperatorRulesOn> gathered_casts() const;

  /// Sets whether backward averages gradients; if not, they stay whole on this rank.
  void set_synchronised(bool synchronised) { synchronised_ = synchronised; }
  bool is_synchronised() const { return synchronised_; }

  /// Averages what has accumulated without, as a backward would that adds nothing. A collective.
  void reduce_accumulated();

  /// Makes all parameters whole, to be changed if `keeps_changes`: then nothing else gathers or
  /// releases them before end_whole(). A collective.
  void gather_all(bool keeps_changes);
  /// Frees their memory; this rank's parts take over what was changed if `changed`.
  void end_whole(bool changed);

  /// Gives the module whole parameters of its own and ends the sharding: what is left here is of no
  /// use any more. A collective.
  void unwrap();

  /// Calls a visitor with some whole parameters at a time, each once. A collective.
  void visit_whole(const std::function<void(const NamedTensors&)>& visitor);

  /// Returns this rank's part of every parameter, in the order of the module's.
  std::vector<ParameterPart> all_parts() const;

  /// Returns them without empty ones.
  std::vector<ParameterPart> parts() const;

  /// Returns the ranks that share this rank's copy.
  const ProcessGroup& shard_group() const { return groups_.shards; }

  ShardingReport report() const;
  double communication_seconds() const { return waited_seconds_; }

 private:
  class HandedOn;
  using Flat = std::unique_ptr<FlatParameter>;

  /// A unit's forward, as its backward must know it.
  struct Computed {
    std::size_t unit;
    std::optional<at::ScalarType> cast;
    std::vector<std::size_t> read;         // flats, by its backward
    std::vector<std::size_t> read_before;  // by that of the unit before
  };

  void make_flats(const torch::nn::Module& module, const Units& units);
  void initialise(const NamedTensors& parameters) const;
  void attach();
  void hold(const std::vector<std::size_t>& now, const std::vector<std::size_t>& next);
  void release_all();
  void check_keeps_no_changes() const;
  void lend_to_later(std::size_t unit, const std::vector<torch::Tensor>& outputs);
  torch::Tensor handed_on(const torch::Tensor& output);
  void check_parts_unchanged(std::size_t unit) const;

  void follow_stream();
  void begin_pass();
  void enter_backward(const Computed& forward);
  void release_unread(const Computed& forward);
  void leave_backward();
  void on_gradient(std::size_t flat, std::size_t index, torch::Tensor alone = {});
  void reduce(std::size_t flat);
  void end_pass();
  void reduce_rest();
  [[noreturn]] void fail(const std::string& reason) const;

  ProcessGroup group_;  // all ranks
  ShardingGroups groups_;
  std::optional<ProcessGroup> norm_group_;  // its own: it must not disturb the exchanges' order
  FullyShardedDataParallelOptions options_;
  StateRecord record_;
  std::vector<torch::Tensor> buffers_;  // that follow rank 0
  BufferPools pools_;
  torch::Device device_ = torch::kCPU;
  std::optional<c10::Stream> stream_;  // that used the memory last, on an accelerator
  std::vector<Flat> flats_;
  std::vector<std::vector<std::size_t>> flats_of_;          // a unit
  std::vector<std::size_t> first_unit_;                     // that uses a flat
  std::vector<std::pair<std::size_t, std::size_t>> order_;  // flat and index of each parameter
  std::mutex mutex_;  // parameters on devices have their hooks run by other threads
  bool is_unwrapped_ = false;
  bool keeps_changes_ = false;  // of parameters that are whole
  bool synchronised_ = true;
  bool was_synchronised_ = true;  // no gradients of a forward before wait to be added to

  double waited_seconds_ = 0;

  // Of the forward, or that of the backward, under way.
  std::optional<at::ScalarType> cast_;  // autocast's type

  // Of the forward under way.
  std::vector<const void*> entered_;         // where the gradients of a unit's inputs go
  std::vector<std::size_t> read_before_;     // by the backward of the unit that was left last
  std::vector<std::int64_t> seen_versions_;  // of each flat's parts
  bool expects_backward_ = false;

  // Of the backward under way.
  bool in_pass_ = false;
  std::optional<std::size_t> current_;
  std::vector<bool> reduced_;            // flats
  std::optional<std::size_t> reducing_;  // the flat

  GradientHooks hooks_;  // the last member, so that they end first
};

/// A scope in which all parameters are whole on every rank.
class [[nodiscard]] WholeParameters {
 public:
  /// A collective. The ranks' parts take over what was changed meanwhile if `keeps_changes`.
  WholeParameters(std::shared_ptr<ShardedUnits> units, bool keeps_changes)
      : units_(std::move(units)), keeps_changes_(keeps_changes) {
    units_->gather_all(keeps_changes);
  }
  ~WholeParameters() {
    if (units_) units_->end_whole(keeps_changes_);
  }
  WholeParameters(WholeParameters&&) = default;
  WholeParameters& operator=(WholeParameters&&) = delete;

 private:
  std::shared_ptr<ShardedUnits> units_;
  bool keeps_changes_;
};

/// Suspends the averaging of gradients while it exists.
class [[nodiscard]] LocalGradients {
 public:
  explicit LocalGradients(std::shared_ptr<ShardedUnits> units)
      : units_(std::move(units)), before_(units_->is_synchronised()) {
    units_->set_synchronised(false);
  }
  ~LocalGradients() {
    if (units_) units_->set_synchronised(before_);
  }
  LocalGradients(LocalGradients&&) = default;
  LocalGradients& operator=(LocalGradients&&) = delete;

 private:
  std::shared_ptr<ShardedUnits> units_;
  bool before_;
};

/// The units of a chain of layers, which it computes.
class ShardedChain {
 public:
  /// Throws InvalidArgument if a parameter of the module is in no layer. Else as ShardedUnits.
  ShardedChain(const torch::nn::Module& module, const Layers& layers, ProcessGroup group,
      const FullyShardedDataParallelOptions& options);

  /// Computes the layers, of which the module consists. A collective.
  torch::nn::AnyValue forward(const torch::nn::Module& module, torch::nn::AnyValue value);

  const std::shared_ptr<ShardedUnits>& units() const { return sharded_; }

 private:
  torch::nn::AnyValue forward(std::size_t unit, torch::nn::AnyValue value);

  Layers layers_;
  bool checkpoint_;
  std::vector<std::vector<std::size_t>> units_;
  std::shared_ptr<ShardedUnits> sharded_;
};

}  // namespace lockstep
