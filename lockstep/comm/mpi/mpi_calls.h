#pragma once

// How this library calls MPI: its types, its errors, work under way.

#include <chrono>
#include <functional>
#include <mpi.h>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"

namespace lockstep::mpi {

/// Throws CommError with MPI's words if a call has failed.
void check_call(const std::string& what, int code);

/// Returns MPI's type for numbers that it reduces; 16-bit floating point is not among them.
MPI_Datatype type_to_reduce(at::ScalarType type);

/// Returns a type of MPI that is as wide, to move elements as they are.
MPI_Datatype type_to_move(const torch::Tensor& tensor);

/// Returns an operation that combines by the host's loops: MPI's own lose a NaN in min and max, or
/// keep it, by the order of the ranks, and Open MPI's sums of 8 and 16 bits stop at the largest.
MPI_Op operation_of(ReduceOp op);

/// Returns a number of elements as MPI takes it. Throws InvalidArgument beyond 2^31 - 1.
int count_of(const torch::Tensor& tensor, int pieces = 1);

/// A call under way.
struct Call {
  std::string what;
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<torch::Tensor> tensors = {};  ///< that MPI reads and writes until it has ended
  std::function<void()> finish = nullptr;   ///< runs once, when the caller has waited
  std::chrono::milliseconds timeout{};
};

Work work_of(Call call);

}  // namespace lockstep::mpi
