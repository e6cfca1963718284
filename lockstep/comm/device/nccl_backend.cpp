#include "lockstep/comm/device/nccl_backend.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include "lockstep/comm/device/nccl_channel.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using nccl::api, nccl::Channel, nccl::Communicator, nccl::is_taken, nccl::Operation, nccl::Result,
    nccl::Stream, nccl::Type;
using torch::Tensor;

constexpr auto kBetweenLooks = std::chrono::milliseconds(200);

Type type_of(const char* collective, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kChar:
      return Type::kInt8;
    case torch::kByte:
      return Type::kUint8;
    case torch::kInt:
      return Type::kInt32;
    case torch::kLong:
      return Type::kInt64;
    case torch::kHalf:
      return Type::kFloat16;
    case torch::kFloat:
      return Type::kFloat32;
    case torch::kDouble:
      return Type::kFloat64;
    case torch::kBFloat16:
      return Type::kBfloat16;
    default:
      throw InvalidArgument(concat(collective, ": NCCL does not reduce numbers of type ",
          c10::toString(tensor.scalar_type()), "; convert them, or reduce them on the host"));
  }
}

Operation operation_of(const char* collective, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Operation::kSum;
    case ReduceOp::kMean:
      return Operation::kMean;
    case ReduceOp::kProduct:
      return Operation::kProduct;
    case ReduceOp::kMin:
      return Operation::kMin;
    case ReduceOp::kMax:
      return Operation::kMax;
    default:
      throw InvalidArgument(
          concat(collective, ": NCCL has no bitwise operations; reduce on the host"));
  }
}

std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

char* piece_of(const Tensor& whole, int rank, int ranks) {
  return static_cast<char*>(whole.mutable_data_ptr()) +
         whole.nbytes() / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(rank);
}

/// Calls within one group of NCCL's, so that they run beside each other; ends it also by an error.
template <typename Calls>
Result in_group(const Calls& calls) {
  Result result = api().group_start();
  if (!is_taken(result)) return result;
  const Result of_calls = calls();
  result = api().group_end();
  return is_taken(of_calls) ? result : of_calls;
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(Backend& host, torch::Device device)
      : rank_(host.rank()),
        size_(host.size()),
        device_(device),
        timeout_(host.timeout()),
        collectives_(std::make_shared<Channel>(host, device, "nccl")),
        messages_(size_ > 2 ? 4 : 2) {
    for (auto& channel : messages_)
      channel = std::make_shared<Channel>(host, device, "nccl, messages");
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }

  ~NcclBackend() override {
    watchdog_.request_stop();
    looked_.notify_all();
    if (std::uncaught_exceptions() > 0) return;  // nobody may come to what this rank began
    for (Channel* channel : channels()) channel->close(timeout_);
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool carries(torch::Device device) const override { return device == device_; }
  bool sums_in_rank_order() const override { return size() <= 2; }
  // NCCL has no whole numbers of 16 bits; in 32, their last 16 bits come out the same.
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    return type == torch::kShort ? torch::kInt : Backend::reduced_as(device, type, op);
  }

  Work all_reduce(const Tensor& tensor, ReduceOp op) override {
    const Type type = type_of("all_reduce", tensor);
    const Operation operation = operation_of("all_reduce", op);
    return collectives_->call("all_reduce", {tensor}, [&](Communicator* all, Stream stream) {
      void* const data = tensor.mutable_data_ptr();
      return api().all_reduce(data, data, count_of(tensor), type, operation, all, stream);
    });
  }
  Work reduce(const Tensor& tensor, int root, ReduceOp op) override {
    const Type type = type_of("reduce", tensor);
    const Operation operation = operation_of("reduce", op);
    return collectives_->call("reduce", {tensor}, [&](Communicator* all, Stream stream) {
      void* const data = tensor.mutable_data_ptr();
      return api().reduce(data, data, count_of(tensor), type, operation, root, all, stream);
    });
  }
  Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op) override {
    const Type type = type_of("reduce_scatter", input);
    const Operation operation = operation_of("reduce_scatter", op);
    return collectives_->call(
        "reduce_scatter", {output, input}, [&](Communicator* all, Stream stream) {
          return api().reduce_scatter(input.const_data_ptr(), output.mutable_data_ptr(),
              count_of(output), type, operation, all, stream);
        });
  }
  Work broadcast(const Tensor& tensor, int root) override {
    return collectives_->call("broadcast", {tensor}, [&](Communicator* all, Stream stream) {
      void* const data = tensor.mutable_data_ptr();
      return api().broadcast(data, data, tensor.nbytes(), Type::kUint8, root, all, stream);
    });
  }
  Work all_gather(const Tensor& output, const Tensor& input) override {
    return collectives_->call("all_gather", {output, input}, [&](Communicator* all, Stream stream) {
      return api().all_gather(input.const_data_ptr(), output.mutable_data_ptr(), input.nbytes(),
          Type::kUint8, all, stream);
    });
  }
  Work gather(const Tensor& output, const Tensor& input, int root) override {
    return collectives_->call("gather", {output, input}, [&](Communicator* all, Stream stream) {
      return in_group([&] {
        Result result = send_bytes(input.const_data_ptr(), input.nbytes(), root, all, stream);
        for (int from = 0; rank_ == root && from < size_ && is_taken(result); ++from)
          result = recv_bytes(piece_of(output, from, size_), input.nbytes(), from, all, stream);
        return result;
      });
    });
  }
  Work scatter(const Tensor& output, const Tensor& input, int root) override {
    return collectives_->call("scatter", {output, input}, [&](Communicator* all, Stream stream) {
      return in_group([&] {
        Result result = recv_bytes(output.mutable_data_ptr(), output.nbytes(), root, all, stream);
        for (int to = 0; rank_ == root && to < size_ && is_taken(result); ++to)
          result = send_bytes(piece_of(input, to, size_), output.nbytes(), to, all, stream);
        return result;
      });
    });
  }
  Work all_to_all(const Tensor& output, const Tensor& input) override {
    const std::size_t bytes = input.nbytes() / static_cast<std::size_t>(size_);
    return collectives_->call("all_to_all", {output, input}, [&](Communicator* all, Stream stream) {
      return in_group([&] {
        Result result = Result::kSuccess;
        for (int peer = 0; peer < size_ && is_taken(result); ++peer) {
          result = send_bytes(piece_of(input, peer, size_), bytes, peer, all, stream);
          if (is_taken(result))
            result = recv_bytes(piece_of(output, peer, size_), bytes, peer, all, stream);
        }
        return result;
      });
    });
  }

  // Note [Messages over NCCL]
  // A kernel that sends ends when the other rank receives, and those of one stream run one after
  // the other. So messages to higher and to lower ranks have a communicator and a stream each, and
  // neighbours that send to each other do not wait for each other; nor do they where they connect
  // (Note [Calls that do not block]). Either has one for what ranks of an even number send, and one
  // for the odd ones: so what a stage of a pipeline receives from one neighbour does not wait for
  // what it computes before it sends that to the other. NCCL knows no tags: messages between two
  // ranks must be received in the order in which they are sent. It does not promise either that
  // kernels of several communicators run beside each other on one GPU; where they fit there they
  // do, and PyTorch takes that for granted, too.
  Work send(const Tensor& tensor, int to, int /*tag*/) override {
    return between(rank_, to).call("send", {tensor}, [&](Communicator* all, Stream stream) {
      return send_bytes(tensor.const_data_ptr(), tensor.nbytes(), to, all, stream);
    });
  }
  Work recv(const Tensor& tensor, int from, int /*tag*/) override {
    return between(from, rank_).call("recv", {tensor}, [&](Communicator* all, Stream stream) {
      return recv_bytes(tensor.mutable_data_ptr(), tensor.nbytes(), from, all, stream);
    });
  }
  Work barrier() override {
    return all_reduce(at::zeros({1}, torch::dtype(torch::kFloat).device(device_)), ReduceOp::kSum);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>&) override {
    throw Error("nccl: a subgroup is made from one of the host's groups");
  }
  Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string& reason) override {
    for (Channel* channel : channels()) channel->abort(reason);
  }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

 private:
  static Result send_bytes(
      const void* data, std::size_t bytes, int to, Communicator* all, Stream stream) {
    return api().send(data, bytes, Type::kUint8, to, all, stream);
  }
  static Result recv_bytes(
      void* data, std::size_t bytes, int from, Communicator* all, Stream stream) {
    return api().recv(data, bytes, Type::kUint8, from, all, stream);
  }

  // Of two ranks the even one sends up, and the odd one down.
  Channel& between(int from, int to) {
    const std::size_t odd = from % 2 == 0 ? 0 : 1, down = size_ > 2 && from > to ? 2 : 0;
    return *messages_[odd + down];
  }

  std::vector<Channel*> channels() {
    std::vector<Channel*> all = {collectives_.get()};
    for (const auto& channel : messages_) all.push_back(channel.get());
    return all;
  }

  void watch(const std::stop_token& stop) {
    const c10::DeviceGuard guard(device_);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!looked_.wait_for(lock, stop, kBetweenLooks, [&] { return stop.stop_requested(); }))
      for (Channel* channel : channels()) channel->watch(timeout_);
  }

  int rank_, size_;
  torch::Device device_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::shared_ptr<Channel> collectives_;
  std::vector<std::shared_ptr<Channel>> messages_;
  std::condition_variable_any looked_;
  std::jthread watchdog_;  // the last, so that it ends first
};

}  // namespace

std::shared_ptr<Backend> make_nccl_backend(Backend& host, torch::Device device) {
  return std::make_shared<NcclBackend>(host, device);
}

}  // namespace lockstep
