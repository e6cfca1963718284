#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/parallel/data_parallel/backward_node.h"
#include "lockstep/parallel/data_parallel/module_tensors.h"
#include "lockstep/parallel/data_parallel/replica.h"
#include "lockstep/parallel/data_parallel/replica_threads.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep::data_parallel {

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
