#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/parallel/data_parallel/replica.h"
#include "lockstep/parallel/data_parallel/scatter.h"
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
