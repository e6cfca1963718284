#include "lockstep/comm/mpi/mpi_backend.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/forgotten_init.h"
#include "lockstep/comm/mpi/mpi_calls.h"
#include "lockstep/comm/record/recorded_backend.h"
#include "lockstep/comm/single_backend.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep {
namespace {

using namespace mpi;  // of which every line here speaks

constexpr int kTagOfSplit = 1;

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
      : group_(group), rank_(rank_in(group)), size_(size_of(group)), timeout_(timeout) {
    check_call("error handler", MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN));
  }

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool carries(torch::Device device) const override { return device.is_cpu(); }
  bool sums_in_rank_order() const override { return size() <= 2; }
  // MPI has no 16-bit floating point; sums in float are the better ones, too.
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    const bool is_16_bit = type == torch::kHalf || type == torch::kBFloat16;
    return is_16_bit ? torch::kFloat : Backend::reduced_as(device, type, op);
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    return begin("all_reduce", {tensor}, after_reduction(tensor, op), [&](MPI_Request* request) {
      const auto type = tensor.scalar_type();
      return MPI_Iallreduce(MPI_IN_PLACE, tensor.data_ptr(), count_of(tensor), type_to_reduce(type),
          operation_of(op), group_, request);
    });
  }

  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override {
    const bool is_root = rank_ == root;
    return begin("reduce", {tensor}, is_root ? after_reduction(tensor, op) : nullptr,
        [&](MPI_Request* request) {
          const auto type = tensor.scalar_type();
          return MPI_Ireduce(is_root ? MPI_IN_PLACE : tensor.data_ptr(),
              is_root ? tensor.data_ptr() : nullptr, count_of(tensor), type_to_reduce(type),
              operation_of(op), root, group_, request);
        });
  }

  Work broadcast(const torch::Tensor& tensor, int root) override {
    return begin("broadcast", {tensor}, nullptr, [&](MPI_Request* request) {
      return MPI_Ibcast(
          tensor.data_ptr(), count_of(tensor), type_to_move(tensor), root, group_, request);
    });
  }

  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return begin("all_gather", {output, input}, nullptr, [&](MPI_Request* request) {
      return MPI_Iallgather(input.data_ptr(), count_of(input), type_to_move(input),
          output.data_ptr(), count_of(input), type_to_move(input), group_, request);
    });
  }

  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return begin("gather", {output, input}, nullptr, [&](MPI_Request* request) {
      return MPI_Igather(input.data_ptr(), count_of(input), type_to_move(input),
          rank_ == root ? output.data_ptr() : nullptr, count_of(input), type_to_move(input), root,
          group_, request);
    });
  }

  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return begin("scatter", {output, input}, nullptr, [&](MPI_Request* request) {
      return MPI_Iscatter(rank_ == root ? input.data_ptr() : nullptr, count_of(output),
          type_to_move(output), output.data_ptr(), count_of(output), type_to_move(output), root,
          group_, request);
    });
  }

  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override {
    return begin(
        "reduce_scatter", {output, input}, after_reduction(output, op), [&](MPI_Request* request) {
          const auto type = input.scalar_type();
          return MPI_Ireduce_scatter_block(input.data_ptr(), output.data_ptr(), count_of(output),
              type_to_reduce(type), operation_of(op), group_, request);
        });
  }

  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return begin("all_to_all", {output, input}, nullptr, [&](MPI_Request* request) {
      const int count = count_of(input, size_);
      return MPI_Ialltoall(input.data_ptr(), count, type_to_move(input), output.data_ptr(), count,
          type_to_move(output), group_, request);
    });
  }

  Work send(const torch::Tensor& tensor, int to, int tag) override {
    return begin("send", {tensor}, nullptr, [&](MPI_Request* request) {
      return MPI_Isend(
          tensor.data_ptr(), count_of(tensor), type_to_move(tensor), to, tag, group_, request);
    });
  }

  Work recv(const torch::Tensor& tensor, int from, int tag) override {
    return begin("recv", {tensor}, nullptr, [&](MPI_Request* request) {
      return MPI_Irecv(
          tensor.data_ptr(), count_of(tensor), type_to_move(tensor), from, tag, group_, request);
    });
  }

  Work barrier() override {
    return begin("barrier", {}, nullptr,
        [&](MPI_Request* request) { return MPI_Ibarrier(group_, request); });
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm part = MPI_COMM_NULL;
    check_call("subgroup", MPI_Comm_group(group_, &all));
    check_call(
        "subgroup", MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some));
    const int code = MPI_Comm_create_group(group_, some, kTagOfSplit, &part);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    check_call("subgroup", code);
    return std::make_shared<MpiBackend>(part, timeout_);
  }

  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }

  void abort(const std::string& reason) override {
    std::cerr << "lockstep: " << reason << "; all ranks end by MPI_Abort" << std::endl;
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::kPeersLost));
  }

  std::chrono::milliseconds timeout() const override { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

 private:
  template <typename Begin>
  Work begin(const char* what, std::vector<torch::Tensor> tensors, std::function<void()> finish,
      Begin begin) {
    Call call{.what = what,
        .tensors = std::move(tensors),
        .finish = std::move(finish),
        .timeout = timeout_};
    check_call(what, begin(&call.request));
    return work_of(std::move(call));
  }

  // Divides sums into means.
  std::function<void()> after_reduction(const torch::Tensor& result, ReduceOp op) const {
    if (op != ReduceOp::kMean) return nullptr;
    return [result, size = size_] { result.div_(size); };
  }

  MPI_Comm group_;
  int rank_, size_;
  std::chrono::milliseconds timeout_;
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
