#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/DeviceType.h>

#include "lockstep/core/spans.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {

/// The shapes of an operator's arguments, as far as its arithmetic follows from them.
struct OperatorShapes {
  std::vector<std::vector<std::int64_t>> tensors;  ///< in their order
  std::vector<std::int64_t> stride = {}, padding = {}, dilation = {};
  bool is_padding_same = false;  ///< the output is as large as the input
};

/// Returns the operations of the forward of a convolution or a product of matrices, by the direct
/// method, a multiplication and an addition each counted; of attention those of its two products.
/// 0 for every other operator. `name` is LibTorch's: `aten::conv2d`.
double forward_flops(std::string_view name, const OperatorShapes& shapes);

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
