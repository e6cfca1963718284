#pragma once

#include <torch/types.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"

namespace lockstep {

/// Throw InvalidArgument that names the collective, the argument and its value.
void check_rank(const char* collective, const char* argument, int rank, int size);
void check_tensor(const char* collective, const torch::Tensor& tensor);
void check_op(const char* collective, at::ScalarType type, ReduceOp op);

/// Checks that `whole` has the type of `piece` and `count` times its elements.
void check_pieces(
    const char* collective, const char* whole_name, const torch::Tensor& whole,
    const char* piece_name, const torch::Tensor& piece, int count);

/// Returns the operation on bytes that stands for an operation on bools: sum is or, product is and.
ReduceOp op_for(at::ScalarType type, ReduceOp op);

/// A tensor as a backend wants it: dense, and bytes in place of bools where it is reduced.
class Operand {
 public:
  enum Use { kMoved, kReduced };

  explicit Operand(const torch::Tensor& tensor, Use use = kMoved);

  const torch::Tensor& dense() const { return dense_; }

  /// Returns work that also copies the result back into a tensor that was not dense.
  Work finish(Work work) const;

 private:
  torch::Tensor original_;
  torch::Tensor dense_;
};

}  // namespace lockstep
