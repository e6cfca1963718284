#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include <c10/core/DeviceType.h>

#include "lockstep/core/spans.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// Records, while it lives and SpanRecorder is on, each operator of LibTorch that a thread calls
/// and each node of autograd's graph that it runs, but not what these call in turn. One at a time.
class OperatorRecorder {
 public:
  /// `state` are the tensors of the model by their names: see Note [Layers in a profile]. Each
  /// operator is waited for on the calling thread's device of the type `awaited`, if one is named:
  /// there it returns before it is done. Not what other streams carry: ranks would wait for each
  /// other's messages.
  OperatorRecorder(const nn::NamedTensors& state, std::optional<c10::DeviceType> awaited);
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  /// Returns how SpanRecorder finds the nodes of LibTorch's graphs.
  static SpanRecorder::Graph graph();

 private:
  std::uint64_t handle_ = 0;
};

}  // namespace lockstep
