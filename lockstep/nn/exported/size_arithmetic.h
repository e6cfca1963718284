#pragma once

#include <span>
#include <string_view>

#include <ATen/core/ivalue.h>

namespace lockstep::nn::exported {

/// A function of numbers and tensors that is no operator of LibTorch, or one that is cheaper so.
using NumberFunction = c10::IValue (*)(std::span<const c10::IValue> arguments);

/// A function under the name that exported programs have for it.
struct NamedNumberFunction {
  std::string_view
      target;  ///< `_operator.floordiv`, `torch.sym_max`, `torch.ops.aten.sym_size.int`
  std::size_t arguments;
  NumberFunction function;
};

/// Finds Python's arithmetic with sizes by a node's target; null for anything else.
///
/// As in Python: truth counts as 0 or 1, division and remainder round down, whole numbers stay
/// whole. Throws InvalidArgument for a division by zero and beyond 64 bits.
const NamedNumberFunction* find_number_function(std::string_view target);

}  // namespace lockstep::nn::exported
