#include "lockstep/comm/mpi/mpi_backend.h"

#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 2000;  // about a millisecond, after which a waiting thread sleeps in between
constexpr std::chrono::microseconds kNap{50};

constexpr int kTagOfSplit = 1;

/// Throws CommError with MPI's words if a call has failed.
void check_call(const std::string& what, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(concat("mpi: ", what, ": ", text));
}

/// A call under way.
struct PendingCall {
  std::string what;
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<torch::Tensor> tensors = {};  ///< that MPI reads and writes until it has ended
  std::function<void()> finish = nullptr;   ///< runs once, when the caller has waited
  std::chrono::milliseconds timeout{};
};

/// Keeps until the end of the process what MPI may still write to.
void keep_for_ever(PendingCall call) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<PendingCall>();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(call));
}

class CallState final : public Work::State {
 public:
  explicit CallState(PendingCall call)
      : call_(std::move(call)), deadline_(Clock::now() + call_.timeout) {}

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

  PendingCall call_;
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

/// Returns MPI's type for numbers that it reduces; 16-bit floating point is not among them.
MPI_Datatype type_to_reduce(at::ScalarType type) {
  for (const NamedType& each : reduced_types())
    if (each.type == type) return each.name;
  throw InvalidArgument(concat("mpi: cannot reduce numbers of type ", c10::toString(type)));
}

/// Returns a type of MPI that is as wide, to move elements as they are.
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

/// Returns an operation that combines by the host's loops: MPI's own lose a NaN in min and max, or
/// keep it, by the order of the ranks, and Open MPI's sums of 8 and 16 bits stop at the largest.
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

/// Returns a number of elements as MPI takes it. Throws InvalidArgument beyond 2^31 - 1.
int count_of(const torch::Tensor& tensor, int pieces = 1) {
  const std::int64_t count = tensor.numel() / pieces;
  check(count <= std::numeric_limits<int>::max(), "mpi: one call takes at most ",
      std::numeric_limits<int>::max(), " elements, not ", count, "; pass parts of the tensor");
  return static_cast<int>(count);
}

int rank_in(MPI_Comm group) {
  int rank = 0;
  check_call("rank", MPI_Comm_rank(group, &rank));
  return rank;
}

int size_of(MPI_Comm group) {
  int size = 0;
  check_call("size", MPI_Comm_size(group, &size));
  return size;
}

/// A communicator of its own is never freed: that would be a collective, and groups are forgotten
/// in any order. MPI_Finalize() takes all.
class MpiBackend final : public Backend {
 public:
  MpiBackend(MPI_Comm group, std::chrono::milliseconds timeout)
      : Backend(rank_in(group), size_of(group)), group_(group) {
    timeout_ = timeout;
    check_call("error handler", MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN));
  }

  std::string name() const override { return "mpi"; }
  // MPI has no 16-bit floating point; sums in float are the better ones, too.
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    const bool is_16_bit = type == torch::kHalf || type == torch::kBFloat16;
    return is_16_bit ? torch::kFloat : Backend::reduced_as(device, type, op);
  }

  void abort(const std::string& reason) override {
    std::cerr << "lockstep: " << reason << "; all ranks end by MPI_Abort" << std::endl;
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::kPeersLost));
  }

 protected:
  Work begin(const CollectiveCall& call) override {
    PendingCall pending{.what = call.name(), .tensors = {call.output, call.input}};
    pending.timeout = timeout_;
    if (call.op == ReduceOp::kMean && call.output.defined())
      pending.finish = [sum = call.output, size = size_] { sum.div_(size); };
    check_call(pending.what, start(call, &pending.request));
    return Work(std::make_shared<CallState>(std::move(pending)));
  }

  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm part = MPI_COMM_NULL;
    check_call("subgroup", MPI_Comm_group(group_, &all));
    check_call(
        "subgroup", MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some));
    const int code = MPI_Comm_create_group(group_, some, kTagOfSplit, &part);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    check_call("subgroup", code);
    return std::make_shared<MpiBackend>(part, timeout());
  }

 private:
  int start(const CollectiveCall& call, MPI_Request* request) const {
    if (call.kind == Operation::kBarrier) return MPI_Ibarrier(group_, request);
    const void* const from = call.input.defined() ? call.input.data_ptr() : nullptr;
    void* const to = call.output.defined() ? call.output.data_ptr() : nullptr;
    const MPI_Datatype type =
        call.reduces() ? type_to_reduce(call.tensor().scalar_type()) : type_to_move(call.tensor());
    const bool is_piece_written =
        call.kind == Operation::kScatter || call.kind == Operation::kReduceScatter;
    const int count = count_of(is_piece_written ? call.output : call.tensor(),
        call.kind == Operation::kAllToAll ? size_ : 1);
    switch (call.kind) {
      case Operation::kAllReduce:
        return MPI_Iallreduce(
            MPI_IN_PLACE, to, count, type, operation_of(call.op), group_, request);
      case Operation::kReduce:
        return MPI_Ireduce(call.output.defined() ? MPI_IN_PLACE : from, to, count, type,
            operation_of(call.op), call.root, group_, request);
      case Operation::kBroadcast:
        return MPI_Ibcast(call.tensor().data_ptr(), count, type, call.root, group_, request);
      case Operation::kAllGather:
        return MPI_Iallgather(from, count, type, to, count, type, group_, request);
      case Operation::kGather:
        return MPI_Igather(from, count, type, to, count, type, call.root, group_, request);
      case Operation::kScatter:
        return MPI_Iscatter(from, count, type, to, count, type, call.root, group_, request);
      case Operation::kReduceScatter:
        return MPI_Ireduce_scatter_block(
            from, to, count, type, operation_of(call.op), group_, request);
      case Operation::kAllToAll:
        return MPI_Ialltoall(from, count, type, to, count, type, group_, request);
      case Operation::kSend:
        return MPI_Isend(from, count, type, call.peer, call.tag, group_, request);
      case Operation::kRecv:
        return MPI_Irecv(to, count, type, call.peer, call.tag, group_, request);
      default:
        throw Error(concat("mpi: not a call of a group: ", call.name()));
    }
  }

  MPI_Comm group_;
};

void finalize() { MPI_Finalize(); }

void initialise() {
  int is_ready = 0, level = MPI_THREAD_SINGLE;
  check_call("initialise", MPI_Initialized(&is_ready));
  if (is_ready == 0) {
    check_call("initialise", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    std::atexit(finalize);
  }
  check_call("initialise", MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE)
    throw CommError("mpi: this MPI may not be called by several threads (MPI_THREAD_MULTIPLE)");
}

}  // namespace

ProcessGroup init_mpi_process_group(std::chrono::milliseconds timeout) {
  initialise();
  note_init();
  if (size_of(MPI_COMM_WORLD) == 1) return ProcessGroup(std::make_shared<SingleBackend>());
  MPI_Comm own = MPI_COMM_NULL;
  check_call("world", MPI_Comm_dup(MPI_COMM_WORLD, &own));
  return ProcessGroup(recorded_world(std::make_shared<MpiBackend>(own, timeout)));
}

}  // namespace lockstep
