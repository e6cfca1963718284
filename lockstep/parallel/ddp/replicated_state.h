#pragma once

#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/parallel/ddp/replicas.h"

namespace lockstep {

/// Is what the replicas of a model have in common: of a module, of the modules of a pipeline's
/// stage, or of no module at all. A tensor may be listed under several names.
struct ReplicatedState {
  NamedTensors parameters;
  NamedTensors buffers;
  std::set<std::string> sparse;  ///< parameters whose gradients are sparse

  /// Adds the parameters and buffers of a module, their names behind the prefix. Embeddings
  /// made with sparse(true) are known to have sparse gradients.
  void add(const torch::nn::Module& module, const std::string& prefix = "");

  /// Leaves out what is named by one of the patterns (names or shell patterns). Throws
  /// InvalidArgument if a pattern fits nothing.
  ReplicatedState without(const std::vector<std::string>& patterns) const;
};

}  // namespace lockstep
