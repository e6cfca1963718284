#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Checks that all ranks have the same tensors: number, names, types and shapes, none of them
/// complex. A collective; throws the same InvalidArgument on every rank, which names rank, tensor
/// and shapes.
void check_same_on_all_ranks(
    const std::string& what, const NamedTensors& tensors, const ProcessGroup& group);

/// Copies the root's tensors to all ranks, coalesced by element type. A collective.
void broadcast_all(const std::vector<torch::Tensor>& tensors, int root, const ProcessGroup& group);

/// The state that the replicas of a model have in common: of a module, of the modules of a
/// pipeline's stage, or of no module at all. A tensor may be listed under several names.
struct ReplicatedState {
  NamedTensors parameters;
  NamedTensors buffers;
  std::set<std::string> sparse;  ///< parameters whose gradients are sparse

  /// Adds the parameters and buffers of a module, their names behind the prefix. Embeddings
  /// made with sparse(true) are known to have sparse gradients.
  void add(const torch::nn::Module& module, const std::string& prefix = "");

  /// Leaves out what matches one of the patterns (names or shell patterns). Throws InvalidArgument
  /// if a pattern matches nothing.
  ReplicatedState without(const std::vector<std::string>& patterns) const;
};

/// A record of a state, to notice when it is no longer what a wrapper was made for.
class StateRecord {
 public:
  explicit StateRecord(const ReplicatedState& state);

  /// Returns the first change that matters, for people, or nothing: a tensor that was added,
  /// removed or replaced, a parameter of another type, shape or device, or one that requires a
  /// gradient and did not.
  std::string change(const ReplicatedState& now) const;

 private:
  struct Entry {
    std::string name;
    torch::Tensor tensor;
    bool is_parameter;
    at::ScalarType type;
    torch::Device device;
    std::vector<std::int64_t> sizes;
    bool required_grad;
  };

  void add(const NamedTensors& tensors, bool are_parameters);
  bool has(const std::string& name) const;
  std::string change(const Entry& then, const std::pair<std::string, torch::Tensor>& now) const;

  std::vector<Entry> entries_;  // parameters, then buffers
};

}  // namespace lockstep
