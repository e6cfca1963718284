#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/replica.h"
#include "lockstep/parallel/data_parallel/replica_set.h"
#include "lockstep/parallel/place/nested.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {

/// The options of DataParallel.
struct DataParallelOptions {
  /// Where the outputs are gathered; the first place if not given.
  TORCH_ARG(std::optional<Place>, output_place) = std::nullopt;
};

/// A module trained in one process on several places at once: each computes a share of the batch.
///
/// It is called like the module, `->` reaches the module, and `backward()` returns with the same
/// gradients as the module itself would have.
///
///     lockstep::DataParallel model(net, lockstep::cpu_places(2));
///     loss_of(model(images), labels).backward();
///     optimizer.step();
///
/// Every tensor in the arguments is divided along its first dimension, as torch.chunk does; other
/// values go to all replicas. Their results are concatenated along the first dimension; single
/// numbers become a vector with one number a replica, plain values must be the same on all.
/// Arguments and results may be nested (Note [Nested values]). A batch with fewer samples than
/// places uses fewer places.
///
/// Replicas are made once and follow the module before each forward: parameters (shared in memory
/// on its own device, else copied), buffers, what requires gradients, training or evaluation. The
/// first replica works on the module's own buffers, so running statistics are those of its share,
/// as in PyTorch. A forward throws InvalidArgument if parameters, buffers or sub-modules were
/// added, removed or replaced since construction: wrap the module again after such a change. Other
/// members are copied at construction and not followed: what reaches another module by a captured
/// reference, or is changed later, stays as it was. In training each replica draws random numbers
/// from a separate stream, seeded by LibTorch's generator: a run repeats bit for bit. A tensor that
/// is not a parameter, buffer or input of the module gets no gradient.
///
/// `Holder` is a module holder (torch::nn::Sequential, or one of TORCH_MODULE) or a std::shared_ptr
/// to a module.
template <typename Holder>
class DataParallel {
 public:
  using Module = std::remove_reference_t<decltype(*std::declval<Holder&>())>;

  /// Makes the replicas by the module's clone(). Throws InvalidArgument if it or a sub-module has
  /// none (derive from torch::nn::Cloneable), and if there are no places.
  DataParallel(Holder module, const std::vector<Place>& places, DataParallelOptions options = {})
      : DataParallel(std::move(module), places, std::function<Holder()>(), std::move(options)) {}

  /// Makes the replicas by a function, for modules without clone(). Their values do not matter;
  /// InvalidArgument is thrown if they are not built like the module.
  ///
  ///     DataParallel model(net, places, [] { return Net(10); });
  DataParallel(Holder module, const std::vector<Place>& places,
      const std::function<Holder()>& make_another, DataParallelOptions options = {})
      : module_(std::move(module)) {
    check(!places.empty(), "DataParallel: there must be at least one place");
    data_parallel::without_drawing([&] {
      for (std::size_t i = 0; i < places.size(); ++i) replicas_.push_back(another(make_another));
    });
    const std::vector<std::shared_ptr<torch::nn::Module>> bases(replicas_.begin(), replicas_.end());
    set_ = std::make_shared<data_parallel::ReplicaSet>(
        shared(module_), bases, places, options.output_place().value_or(places.front()).device);
  }

  /// Computes the module's forward, divided over the places. When replicas throw, all stop, and the
  /// exception of the first of them is thrown here with its number and place (see
  /// data_parallel::ReplicaThreads).
  template <typename... Arguments>
  auto operator()(const Arguments&... arguments) {
    using Result = std::decay_t<decltype(std::declval<Module&>().forward(
        std::declval<std::decay_t<Arguments>&>()...))>;
    static_assert(!std::is_void_v<Result>, "DataParallel: forward must return something");
    const std::tuple<std::decay_t<Arguments>...> all(arguments...);
    const auto inputs = lockstep::flatten(all);
    data_parallel::ForwardPass pass(*set_, inputs, sizeof...(Arguments) > 0);
    std::vector<std::optional<Result>> results(pass.size());
    pass.run([&](std::size_t replica, const std::vector<torch::Tensor>& shards) {
      auto own = lockstep::unflatten(all, shards);
      results[replica].emplace(
          std::apply([&](auto&... values) { return replicas_[replica]->forward(values...); }, own));
      return lockstep::flatten(*results[replica]);
    });
    for (const auto& result : results) check_alike(*results.front(), *result);
    return lockstep::unflatten(*std::move(results.front()), pass.gather());
  }

  auto operator->() const { return &*module_; }
  auto& operator*() const { return *module_; }

 private:
  static std::shared_ptr<Module> shared(const std::shared_ptr<Module>& module) { return module; }
  static std::shared_ptr<Module> shared(const torch::nn::ModuleHolder<Module>& module) {
    return module.ptr();
  }

  std::shared_ptr<Module> another(const std::function<Holder()>& make) const {
    if (make) return shared(make());
    auto clone = std::dynamic_pointer_cast<Module>(data_parallel::clone_module(*module_));
    check(clone != nullptr, "DataParallel: clone() of ", module_->name(), " gives another type");
    return clone;
  }

  template <typename Result>
  static void check_alike(const Result& first, const Result& other) {
    check(same_structure(first, other),
        "DataParallel: the replicas returned different structures or plain values; return tensors, "
        "with the batch as their first dimension");
  }

  Holder module_;
  std::vector<std::shared_ptr<Module>> replicas_;
  std::shared_ptr<data_parallel::ReplicaSet> set_;
};

}  // namespace lockstep
