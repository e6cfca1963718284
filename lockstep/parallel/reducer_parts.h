#pragma once

// The parts that the reducer's sources share.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/autograd/variable.h>

#include "lockstep/comm/work.h"
#include "lockstep/parallel/reducer.h"

namespace lockstep {

/// Is a parameter and its place in a bucket.
struct Reducer::Slot {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor view = {};  ///< the parameter's shape and strides, the bucket's memory
  std::size_t bucket = 0;
  bool ready = false;   ///< in this pass
  bool unused = false;  ///< in this pass, by any rank
};

/// Is a stretch of memory in which gradients are reduced together.
struct Reducer::Bucket {
  torch::Tensor memory;  ///< one-dimensional
  std::size_t parameters = 0;
  std::size_t missing = 0;  ///< parameters whose gradient is not in yet
  Work work = {};
};

/// Keeps the accumulation nodes of all parameters alive: if nobody keeps such a node, its hook
/// never fires.
struct Reducer::Hooks {
  using Node =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  struct Attached {
    Node node;
    std::uintptr_t key;
  };
  std::vector<Attached> attached;
};

/// Says whether two tensors are the same elements of the same memory.
bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace lockstep
