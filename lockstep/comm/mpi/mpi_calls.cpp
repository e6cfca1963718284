#include "lockstep/comm/mpi/mpi_calls.h"

#include <array>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/error.h"

namespace lockstep::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 2000;  // about a millisecond, after which a waiting thread sleeps in between
constexpr std::chrono::microseconds kNap{50};

/// Keeps until the end of the process what MPI may still write to.
void keep_for_ever(Call call) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<Call>();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(call));
}

class CallState final : public Work::State {
 public:
  explicit CallState(Call call) : call_(std::move(call)), deadline_(Clock::now() + call_.timeout) {}

  // Nobody may ever join it, so it is not waited for.
  ~CallState() override {
    if (!has_ended_ && !tested()) keep_for_ever(std::move(call_));
  }
  CallState(const CallState&) = delete;
  CallState& operator=(const CallState&) = delete;

  bool poll() override { return tested() || Clock::now() >= deadline_; }

  void wait() override {
    for (int tries = 0; !tested(); ++tries) {
      if (Clock::now() >= deadline_)
        throw TimeoutError(concat("mpi: ", call_.what, ": not finished within ",
            call_.timeout.count(), " ms; another rank may have ended"));
      if (tries > kSpins) std::this_thread::sleep_for(kNap);
    }
    check_call(call_.what, code_);
    if (call_.finish) std::exchange(call_.finish, nullptr)();
    call_.tensors.clear();
  }

 private:
  bool tested() {
    if (has_ended_) return true;
    int ended = 0;
    code_ = MPI_Test(&call_.request, &ended, MPI_STATUS_IGNORE);
    return has_ended_ = ended != 0 || code_ != MPI_SUCCESS;
  }

  Call call_;
  Clock::time_point deadline_;
  bool has_ended_ = false;
  int code_ = MPI_SUCCESS;
};

/// A type that is reduced, and MPI's name of it.
struct NamedType {
  at::ScalarType type;
  MPI_Datatype name;
};

std::array<NamedType, 7> reduced_types() {
  return {{{torch::kFloat, MPI_FLOAT}, {torch::kDouble, MPI_DOUBLE}, {torch::kInt8, MPI_INT8_T},
      {torch::kUInt8, MPI_UINT8_T}, {torch::kShort, MPI_INT16_T}, {torch::kInt, MPI_INT32_T},
      {torch::kLong, MPI_INT64_T}}};
}

template <ReduceOp kOp>
void reduce_by_kernel(void* lower, void* higher, int* count, MPI_Datatype* name) {
  const void* const inputs[] = {lower, higher};
  void* const outputs[] = {higher};
  for (const NamedType& each : reduced_types())
    if (each.name == *name)
      reduce::best_kernel()({*host::reduce_element(each.type), kOp, inputs, 2, outputs, 1,
          static_cast<std::size_t>(*count)});
}

template <ReduceOp kOp>
MPI_Op by_kernel() {
  constexpr bool kInAnyOrder = kOp != ReduceOp::kMin && kOp != ReduceOp::kMax;  // of two zeros
  static const MPI_Op kMade = [] {
    MPI_Op operation = MPI_OP_NULL;
    check_call("operation", MPI_Op_create(&reduce_by_kernel<kOp>, kInAnyOrder, &operation));
    return operation;
  }();
  return kMade;
}

}  // namespace

void check_call(const std::string& what, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(concat("mpi: ", what, ": ", text));
}

MPI_Datatype type_to_reduce(at::ScalarType type) {
  for (const NamedType& each : reduced_types())
    if (each.type == type) return each.name;
  throw InvalidArgument(concat("mpi: cannot reduce numbers of type ", c10::toString(type)));
}

MPI_Datatype type_to_move(const torch::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      throw InvalidArgument(
          concat("mpi: cannot move numbers of type ", c10::toString(tensor.scalar_type())));
  }
}

MPI_Op operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:  // divided afterwards
      return by_kernel<ReduceOp::kSum>();
    case ReduceOp::kProduct:
      return by_kernel<ReduceOp::kProduct>();
    case ReduceOp::kMin:
      return by_kernel<ReduceOp::kMin>();
    case ReduceOp::kMax:
      return by_kernel<ReduceOp::kMax>();
    case ReduceOp::kAnd:
      return by_kernel<ReduceOp::kAnd>();
    case ReduceOp::kOr:
      return by_kernel<ReduceOp::kOr>();
    case ReduceOp::kXor:
      return by_kernel<ReduceOp::kXor>();
  }
  throw InvalidArgument("mpi: unknown reduce operation");
}

int count_of(const torch::Tensor& tensor, int pieces) {
  const std::int64_t count = tensor.numel() / pieces;
  check(count <= std::numeric_limits<int>::max(), "mpi: one call takes at most ",
      std::numeric_limits<int>::max(), " elements, not ", count, "; pass parts of the tensor");
  return static_cast<int>(count);
}

Work work_of(Call call) { return Work(std::make_shared<CallState>(std::move(call))); }

}  // namespace lockstep::mpi
