#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

/// Returns whether forward_flops() knows the operator.
bool has_flops(std::string_view name);

}  // namespace lockstep
