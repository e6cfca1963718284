#pragma once

// Parts that the reducer's sources share.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/variable.h>

#include "lockstep/comm/work.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/ddp/reducer.h"

namespace lockstep {

/// A parameter and its place in a bucket.
struct Reducer::Slot {
  std::string name;
  torch::Tensor parameter;
  /// At construction, where they were alike on all ranks: averages are taken in the order of
  /// memory.
  std::vector<std::int64_t> strides;
  bool sparse = false;
  torch::Tensor view = {};    ///< its place in the bucket's memory
  torch::Tensor result = {};  ///< instead of the view, if the gradient is sparse
  std::size_t bucket = 0;

  // Of the pass under way.
  int uses = 0;
  bool ready = false;
  bool unused = false;  ///< by any rank

  int first_uses = 0;       ///< in this rank's first pass
  bool never_used = false;  ///< by any rank in the first pass; matters if the graph is static
};

/// A stretch of memory in which gradients are reduced together.
struct Reducer::Bucket {
  torch::Tensor memory = {};  ///< one-dimensional; undefined if the gradient is sparse
  std::vector<std::size_t> parameters = {};
  std::size_t missing = 0;  ///< parameters whose gradient is not in yet
  CommStep step = {};
};

/// Keeps the accumulation nodes of all parameters alive, for otherwise their hooks never fire.
struct Reducer::Hooks {
  using Node =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  struct Attached {
    Node node;
    std::uintptr_t key;
  };
  std::vector<Attached> attached;
  /// Shows the hooks on outputs, which may outlive the reducer, whether it still exists.
  std::shared_ptr<Reducer*> alive;
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
  SpanScope span_{Activity::kCommunication, "reducer"};
};

}  // namespace lockstep
