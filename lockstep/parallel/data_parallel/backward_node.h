#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/parallel/data_parallel/replica_threads.h"

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

}  // namespace lockstep::data_parallel
