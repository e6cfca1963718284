#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "lockstep/core/spans.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Records, while it lives and SpanRecorder is on, each operator of LibTorch that a thread calls
/// and each node of autograd's graph that it runs, but not what these call in turn. One at a time.
class OperatorRecorder {
 public:
  /// `state` are the tensors of the model by their names: see Note [Layers in a profile].
  explicit OperatorRecorder(const nn::NamedTensors& state);
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  /// Returns how SpanRecorder finds the nodes of LibTorch's graphs.
  static SpanRecorder::Graph graph();

 private:
  std::uint64_t handle_ = 0;
};

}  // namespace lockstep
