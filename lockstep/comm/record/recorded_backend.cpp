#include "lockstep/comm/record/recorded_backend.h"

#include <utility>

#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

using Op = Operation;

// Some ranks pass no tensor.
std::int64_t bytes_of_tensor(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

class RecordedBackend final : public Backend {
 public:
  RecordedBackend(std::shared_ptr<Backend> inner, GroupRecord record)
      : inner_(std::move(inner)), record_(std::move(record)) {}

  std::string name() const override { return inner_->name(); }
  std::string device_name() const override { return inner_->device_name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool carries(torch::Device device) const override { return inner_->carries(device); }
  bool sums_in_rank_order() const override { return inner_->sums_in_rank_order(); }
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    return inner_->reduced_as(device, type, op);
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    return begun(Op::kAllReduce, tensor, [&] { return inner_->all_reduce(tensor, op); });
  }
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override {
    return begun(Op::kReduce, tensor, [&] { return inner_->reduce(tensor, root, op); });
  }
  Work broadcast(const torch::Tensor& tensor, int root) override {
    return begun(Op::kBroadcast, tensor, [&] { return inner_->broadcast(tensor, root); });
  }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return begun(Op::kAllGather, input, [&] { return inner_->all_gather(output, input); });
  }
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return begun(Op::kGather, input, [&] { return inner_->gather(output, input, root); });
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return begun(Op::kScatter, output, [&] { return inner_->scatter(output, input, root); });
  }
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override {
    return begun(
        Op::kReduceScatter, input, [&] { return inner_->reduce_scatter(output, input, op); });
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return begun(Op::kAllToAll, input, [&] { return inner_->all_to_all(output, input); });
  }
  Work send(const torch::Tensor& tensor, int to, int tag) override {
    return noted(record_.begin_alone(Op::kSend, bytes_of_tensor(tensor)),
        [&] { return inner_->send(tensor, to, tag); });
  }
  Work recv(const torch::Tensor& tensor, int from, int tag) override {
    return noted(record_.begin_alone(Op::kRecv, bytes_of_tensor(tensor)),
        [&] { return inner_->recv(tensor, from, tag); });
  }
  Work barrier() override {
    return begun(Op::kBarrier, {}, [&] { return inner_->barrier(); });
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override {
    const CallWait wait(record_.begin(Op::kSplit, 0));
    auto inner = inner_->subgroup(members);
    const auto size = static_cast<int>(members.size());
    auto part = record_.part(own_slot(), ++parts_, members.front(), inner->rank(), size);
    return recorded(std::move(inner), std::move(part));
  }

  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    const CallWait wait(record_.begin(Op::kEmpty, 0));
    return inner_->empty(elements, options);
  }

  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return inner_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_->set_timeout(timeout); }

 private:
  // A backend may also do it all before it returns, and so wait here.
  template <typename Begin>
  static Work noted(const CallTicket& ticket, Begin begin) {
    const CallWait wait(ticket);
    return begin().with(ticket);
  }

  template <typename Begin>
  Work begun(Operation operation, const torch::Tensor& tensor, Begin begin) {
    return noted(record_.begin(operation, bytes_of_tensor(tensor)), begin);
  }

  std::shared_ptr<Backend> inner_;
  GroupRecord record_;
  int parts_ = 0;  // groups made of this one
};

}  // namespace

std::shared_ptr<Backend> recorded(std::shared_ptr<Backend> backend, GroupRecord record) {
  if (record.is_empty()) return backend;
  return std::make_shared<RecordedBackend>(std::move(backend), std::move(record));
}

std::shared_ptr<Backend> recorded_world(std::shared_ptr<Backend> backend) {
  const int rank = backend->rank(), size = backend->size();
  return recorded(std::move(backend), GroupRecord(own_slot(), kWorldGroup, rank, size));
}

}  // namespace lockstep
