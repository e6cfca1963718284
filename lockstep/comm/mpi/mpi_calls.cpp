#include "lockstep/comm/mpi/mpi_calls.h"

#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

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

}  // namespace

void check_call(const std::string& what, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(concat("mpi: ", what, ": ", text));
}

MPI_Datatype type_to_reduce(at::ScalarType type) {
  switch (type) {
    case torch::kFloat:
      return MPI_FLOAT;
    case torch::kDouble:
      return MPI_DOUBLE;
    case torch::kInt8:
      return MPI_INT8_T;
    case torch::kUInt8:
      return MPI_UINT8_T;
    case torch::kShort:
      return MPI_INT16_T;
    case torch::kInt:
      return MPI_INT32_T;
    case torch::kLong:
      return MPI_INT64_T;
    default:
      throw InvalidArgument(concat("mpi: cannot reduce numbers of type ", c10::toString(type)));
  }
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
      return MPI_SUM;
    case ReduceOp::kProduct:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kAnd:
      return MPI_BAND;
    case ReduceOp::kOr:
      return MPI_BOR;
    case ReduceOp::kXor:
      return MPI_BXOR;
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
