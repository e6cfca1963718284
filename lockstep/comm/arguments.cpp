#include "lockstep/comm/arguments.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

class CopyBack : public Work::State {
 public:
  CopyBack(Work work, torch::Tensor to, torch::Tensor from)
      : work_(std::move(work)), to_(std::move(to)), from_(std::move(from)) {}

  bool poll() override { return work_.done(); }

  void wait() override {
    work_.wait();
    if (from_.defined()) to_.copy_(std::exchange(from_, {}));
  }

 private:
  Work work_;
  torch::Tensor to_, from_;
};

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kAnd || op == ReduceOp::kOr || op == ReduceOp::kXor;
}

}  // namespace

void check_rank(const char* collective, const char* argument, int rank, int size) {
  check(
      0 <= rank && rank < size, collective, ": ", argument, " must be a rank of the group: ", rank,
      " of ", size);
}

void check_tensor(const char* collective, const torch::Tensor& tensor) {
  check(tensor.defined(), collective, ": the tensor is undefined");
  check(
      tensor.layout() == torch::kStrided, collective, ": the tensor must be dense, not ",
      tensor.layout());
  check(
      !tensor.is_complex(), collective,
      ": complex tensors are not supported; pass view_as_real of it");
}

void check_op(const char* collective, at::ScalarType type, ReduceOp op) {
  const bool real = c10::isFloatingType(type);
  check(
      !(real && is_bitwise(op)), collective, ": bitwise operations need whole numbers, not ",
      c10::toString(type));
  check(
      real || op != ReduceOp::kMean, collective,
      ": the mean of whole numbers is not one of them: ", c10::toString(type),
      "; reduce the sum, or floating-point numbers");
}

void check_pieces(
    const char* collective, const char* whole_name, const torch::Tensor& whole,
    const char* piece_name, const torch::Tensor& piece, int count) {
  check_tensor(collective, whole);
  check_tensor(collective, piece);
  check(
      whole.scalar_type() == piece.scalar_type(), collective, ": ", whole_name, " and ", piece_name,
      " must be of one type: ", c10::toString(whole.scalar_type()), " and ",
      c10::toString(piece.scalar_type()));
  check(
      whole.numel() == piece.numel() * count, collective, ": ", whole_name, " must have ", count,
      " times the elements of ", piece_name, ": ", whole.numel(), " and ", piece.numel());
}

ReduceOp op_for(at::ScalarType type, ReduceOp op) {
  if (type != torch::kBool) return op;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kOr:
      return ReduceOp::kMax;
    case ReduceOp::kProduct:
    case ReduceOp::kAnd:
      return ReduceOp::kMin;
    default:
      return op;
  }
}

Operand::Operand(const torch::Tensor& tensor, Use use)
    : original_(tensor.detach()), dense_(original_.contiguous()) {
  if (use == kReduced && dense_.scalar_type() == torch::kBool) dense_ = dense_.view(torch::kByte);
}

Work Operand::finish(Work work) const {
  if (original_.data_ptr() == dense_.data_ptr()) return work;
  return Work(std::make_shared<CopyBack>(std::move(work), original_, dense_));
}

}  // namespace lockstep
