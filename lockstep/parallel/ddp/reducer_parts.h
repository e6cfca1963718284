#pragma once

// The parts that the reducer's sources share.

#include <string>
#include <vector>

#include <torch/csrc/autograd/variable.h>

#include "lockstep/comm/work.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/ddp/reducer.h"

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

/// Adds the seconds of a scope to a sum.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum) {}
  ~Timed() { sum_ += stopwatch_.seconds(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  Stopwatch stopwatch_;
};

}  // namespace lockstep
