#pragma once

#include <concepts>
#include <memory>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/gradient_sync.h"
#include "lockstep/parallel/place/nested.h"

namespace lockstep {

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
