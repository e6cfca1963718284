#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/replica.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/place/nested.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep::data_parallel {

/// Makes a node of the autograd graph: a counted pointer of the kind that this LibTorch uses.
template <typename NodeType>
auto make_node() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<NodeType>();
  } else {
    return c10::make_intrusive<NodeType>();
  }
}

/// Where the gradient of a replica's input arrives: in front of what the replica computes, so
/// that the input is not a leaf and the replica may change it in place.
class InputNode final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "DataParallelInput"; }
};

/// One replica's own graph, kept for backward.
struct ReplicaGraph {
  torch::autograd::edge_list outputs;  ///< one for each differentiable output; may be invalid
  torch::autograd::edge_list inputs;   ///< one for each differentiable input of the forward
  torch::autograd::edge_list tensors;  ///< one for each tensor of the module that requires grad
};

/// The way one output was gathered, or one input scattered.
struct Layout {
  std::vector<std::int64_t> sizes;  ///< samples of each replica; all 1 and `numbers` for numbers
  bool numbers = false;             ///< whether each replica gave a single number
  torch::Device device = torch::kCPU;
};

/// An input whose memory the replicas' graphs have saved, and which must not change before
/// backward.
struct WatchedInput {
  c10::VariableVersion counter;
  std::int64_t version;
  std::size_t index;
};

/// The whole forward as one node of the user's graph.
///
/// Note [One node]
/// Each replica's operations are a separate graph that ends in the replica's own tensors. The
/// user's graph has one node in its place, from the gathered outputs to the user's inputs and
/// parameters. When it is reached, every replica's thread runs backward on its graph, all at the
/// same time; then the gradients of the parameters are added up in the order of the replicas. So
/// hooks, torch::autograd::grad, retain_graph and accumulation see what they see without
/// DataParallel.
///
/// LibTorch's engine has one thread a GPU, which may be the one that runs this node: the replicas'
/// threads would wait for it forever. On accelerators the engine therefore gets all graphs in one
/// call and runs them in its own threads, also at the same time.
class BackwardNode final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
  std::string name() const override { return "DataParallelBackward"; }

  std::shared_ptr<ReplicaThreads> threads;
  std::vector<ReplicaGraph> graphs;
  std::vector<Layout> outputs;  ///< of the differentiable ones
  std::vector<Layout> inputs;   ///< of the differentiable ones
  std::vector<torch::Device> tensor_devices;
  std::vector<WatchedInput> watched;
  bool in_threads = true;  ///< false: all graphs in one call of the engine

 private:
  struct Task;

  void check_may_run() const;
  Task task_of(std::size_t replica, const torch::autograd::variable_list& gradients) const;
  std::vector<torch::autograd::variable_list> run(std::vector<Task> tasks, bool keep_graph) const;
  torch::autograd::variable_list collect(std::vector<torch::autograd::variable_list> found) const;
};

/// The replicas of a module and their threads: what DataParallel does, without its types.
class ReplicaSet {
 public:
  ReplicaSet(std::shared_ptr<torch::nn::Module> original,
      const std::vector<std::shared_ptr<torch::nn::Module>>& replicas,
      const std::vector<Place>& places, torch::Device output_device);

 private:
  friend class ForwardPass;

  bool all_on_cpu() const;

  std::shared_ptr<torch::nn::Module> original_;
  std::vector<ModuleTensor> originals_;
  NamedModules modules_;
  std::vector<Replica> replicas_;
  std::shared_ptr<ReplicaThreads> threads_;  // a graph may outlive the set
  torch::Device output_device_;
  std::mutex mutex_;
};

/// One forward: scatters the inputs, lets the replicas compute, gathers the outputs.
class ForwardPass {
 public:
  using Tensors = std::vector<torch::Tensor>;
  /// Computes a replica's forward, in its thread, and returns its output tensors.
  using Compute = std::function<Tensors(std::size_t replica, const Tensors& inputs)>;

  /// Brings the replicas up to date and scatters. `has_arguments`: without any, one replica does.
  ForwardPass(ReplicaSet& set, const Tensors& inputs, bool has_arguments);

  /// How many replicas compute.
  std::size_t size() const { return division_.pieces; }

  void run(const Compute& compute);

  /// Returns the gathered outputs, which must have the same structure on all replicas. They carry
  /// one node of the user's graph (Note [One node]).
  Tensors gather();

 private:
  Tensors shards_of(std::size_t replica);
  torch::Tensor shard(std::size_t input, std::size_t replica);
  void note_changes_in_place(const std::vector<Tensors>& shards);
  void watch_saved_inputs(BackwardNode& node) const;
  void attach(const Tensors& outputs);
  bool is_differentiable(std::size_t output) const;
  torch::Tensor gather_one(std::size_t output) const;
  Layout layout_of_output(std::size_t output) const;

  ReplicaSet& set_;
  std::unique_lock<std::mutex> lock_;
  const Tensors& inputs_;
  Division division_;
  bool wants_graph_ = false;
  std::vector<bool> is_differentiable_input_;
  std::vector<std::size_t> holders_;  // of the inputs' memory, before the replicas ran
  std::vector<ReplicaGraph> graphs_;
  std::vector<Tensors> outputs_;  // of each replica
};

}  // namespace lockstep::data_parallel

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
