#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/fsdp/flat_parameter.h"
#include "lockstep/parallel/fsdp/sharded_units.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/place/nested.h"

namespace lockstep {

/// A module trained on all ranks of a group, of which each keeps a part alone of parameters,
/// gradients and the optimizer's state (ZeRO stage 3): for models that do not fit.
///
/// It is called like the module. A unit's parameters are gathered ahead of its forward and again
/// ahead of its backward; gradients are averaged while backward goes on, and each rank gets those
/// of its part. At construction every rank takes rank 0's state, and the module's parameters lose
/// their memory: between the calls only parameters() have values, which the optimizer is given. See
/// whole() and unwrap().
///
///     lockstep::FullyShardedDataParallel model(net, world);
///     torch::optim::AdamW optimizer(model.parameters(), options);
///     loss_of(model(tokens), next).backward();
///     lockstep::clip_grad_norm(model.parameters(), 1.0, model.shard_group());
///     optimizer.step();
///
/// The units of a Sequential, or of another chain of layers, are its layers; a module of another
/// kind is one unit, whole while it computes. An optimizer must treat elements by themselves, as
/// SGD and Adam do and LBFGS does not: it sees parts. Every forward is a collective, in evaluation
/// too. Under autocast what a backward keeps includes copies of weights in the shorter type, but
/// for those that are gathered in it (option `casts`).
///
/// Every parameter that requires a gradient must get one in every backward, and be used in the
/// forward of a layer that holds it. All ranks make as many steps: one that has no batch left takes
/// any and its loss times 0, since its part is gathered, and stepped by its optimizer, to the end.
/// What is sharded is settled at construction, as with DistributedDataParallel.
/// `Holder` is a module holder (torch::nn::Sequential, or one of TORCH_MODULE) or a std::shared_ptr
/// to a module.
template <typename Holder>
class FullyShardedDataParallel {
 public:
  /// Throws InvalidArgument on every rank if the tensors differ in number, name, type or shape, are
  /// on several devices, or have sparse gradients. A collective.
  FullyShardedDataParallel(
      Holder module, ProcessGroup group, const FullyShardedDataParallelOptions& options = {})
      : module_(std::move(module)) {
    if constexpr (std::is_same_v<Holder, torch::nn::Sequential>) {
      chain_.emplace(*module_, layers_of(module_), std::move(group), options);
      units_ = chain_->units();
    } else {
      check(!options.checkpoint(),
          "FullyShardedDataParallel: checkpoint computes the layers of a chain again; pass a "
          "torch::nn::Sequential, or the layers");
      ReplicatedState state;
      state.add(*module_);
      units_ = std::make_shared<ShardedUnits>(
          *module_, ShardedUnits::Units{state.parameters}, std::move(group), options);
    }
  }

  /// Takes a module that consists of these layers, which are called instead of it. Throws, beside
  /// the above, if one of its parameters is in no layer. A collective.
  FullyShardedDataParallel(Holder module, const Layers& layers, ProcessGroup group,
      const FullyShardedDataParallelOptions& options = {})
      : module_(std::move(module)),
        chain_(std::in_place, *module_, layers, std::move(group), options) {
    units_ = chain_->units();
  }

  /// Computes the module's forward. A collective.
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    using Output = decltype(module_->forward(std::forward<Arguments>(arguments)...));
    if constexpr (std::is_constructible_v<ChainInput, Arguments...>) {
      if (chain_) {
        const ChainInput input(std::forward<Arguments>(arguments)...);
        return chain_->forward(*module_, input.value()).template get<Output>();
      }
    }
    check(!chain_, "FullyShardedDataParallel: a chain takes a tensor, or several as a vector");
    return forward_as_one<Output>(std::forward<Arguments>(arguments)...);
  }

  auto operator->() { return &*module_; }
  auto operator->() const { return &*module_; }
  auto& operator*() { return *module_; }
  auto& operator*() const { return *module_; }

  /// Returns this rank's parts of the parameters, for its optimizer.
  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> tensors;
    for (const ParameterPart& part : parts()) tensors.push_back(part.tensor);
    return tensors;
  }

  /// Returns them with what they are parts of.
  std::vector<ParameterPart> parts() const { return units_->parts(); }

  /// Returns the same of every parameter; the tensor is undefined where this rank has none of it.
  std::vector<ParameterPart> all_parts() const { return units_->all_parts(); }

  /// Returns which elements of each parameter this rank has, so that shard_of() makes its file of a
  /// snapshot of parts(). A parameter with several names stands under the first.
  TensorRanges ranges() const {
    TensorRanges ranges;
    for (const ParameterPart& part : all_parts()) ranges.emplace(part.name, range_of(part));
    return ranges;
  }

  /// Returns the ranks that have the other parts of the parameters: with replicas, those that share
  /// this rank's copy, else all.
  const ProcessGroup& shard_group() const { return units_->shard_group(); }

  /// Takes part in a forward of other ranks, without gradients, for which this one has no input;
  /// under autocast if they are. A collective.
  void join_forward() { units_->join_forward(*module_); }

  /// Makes all parameters whole while the returned value lives, to save them or, with
  /// `keeps_changes`, to load others, on every rank the same: then this is not called meanwhile
  /// (InvalidArgument), though the module itself may be, without gradients. A collective; takes the
  /// memory of the whole model.
  ///
  ///     { const auto whole = model.whole(); lockstep::nn::save_weights(*model, file); }
  [[nodiscard]] WholeParameters whole(bool keeps_changes = false) {
    return WholeParameters(units_, keeps_changes);
  }

  /// Calls a visitor with names and whole values of some parameters at a time, each once, to save
  /// what no rank can hold. A collective.
  void visit_whole(const std::function<void(const NamedTensors&)>& visitor) {
    units_->visit_whole(visitor);
  }

  /// Gives the module whole parameters again and ends the sharding: neither this nor the optimizer
  /// is of use any more. A collective.
  void unwrap() { units_->unwrap(); }

  /// Lets gradients accumulate, whole, on this rank for as long as the returned value lives; the
  /// first backward after it averages the sum. Without it each backward averages, and the parts'
  /// gradients add up: that takes less memory.
  [[nodiscard]] LocalGradients no_sync() { return LocalGradients(units_); }

  /// Averages what has accumulated under no_sync(), without a backward. A collective.
  void reduce_accumulated() { units_->reduce_accumulated(); }

  ShardingReport report() const { return units_->report(); }

  /// Returns how long forward and backward have waited for other ranks so far.
  double communication_seconds() const { return units_->communication_seconds(); }

 private:
  template <typename Output, typename... Arguments>
  Output forward_as_one(Arguments&&... arguments) {
    std::vector<torch::Tensor> inputs;
    (visit_tensors(arguments, [&](const torch::Tensor& input) { inputs.push_back(input); }), ...);
    units_->begin_forward(*module_);
    const auto norms = units_->synchronised_batch_norm(module_->is_training());
    const auto casts = units_->gathered_casts();
    units_->enter_forward(0, inputs);
    Output output = module_->forward(std::forward<Arguments>(arguments)...);
    std::vector<torch::Tensor> outputs = lockstep::flatten(output);
    units_->leave_forward(0, outputs);
    units_->end_forward();
    return output;
  }

  Holder module_;
  std::optional<ShardedChain> chain_;
  std::shared_ptr<ShardedUnits> units_;
};

}  // namespace lockstep
