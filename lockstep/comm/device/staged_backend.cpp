#include "lockstep/comm/device/staged_backend.h"

#include <utility>
#include <vector>

#include "lockstep/comm/device/staging_thread.h"

namespace lockstep {
namespace {

using Tensors = std::vector<StagedTensor>;

StagedTensor in(const torch::Tensor& tensor) { return {.on_device = tensor, .is_input = true}; }
StagedTensor out(const torch::Tensor& tensor) { return {.on_device = tensor, .is_output = true}; }
StagedTensor both(const torch::Tensor& tensor) {
  return {.on_device = tensor, .is_input = true, .is_output = true};
}

class StagedBackend final : public Backend {
 public:
  StagedBackend(std::shared_ptr<Backend> host, torch::DeviceType type)
      : host_(std::move(host)), type_(type) {}

  std::string name() const override { return "staged"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  bool carries(torch::Device device) const override { return device.type() == type_; }
  bool sums_in_rank_order() const override { return host_->sums_in_rank_order(); }
  std::optional<at::ScalarType> reduced_as(
      torch::Device, at::ScalarType type, ReduceOp op) const override {
    return host_->reduced_as(torch::kCPU, type, op);
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override {
    return add({both(tensor)},
        [this, op](const Tensors& staged) { return host_->all_reduce(staged[0].on_host, op); });
  }
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override {
    StagedTensor own = in(tensor);
    own.is_output = rank() == root;
    return add({own}, [this, root, op](const Tensors& staged) {
      return host_->reduce(staged[0].on_host, root, op);
    });
  }
  Work broadcast(const torch::Tensor& tensor, int root) override {
    return add({rank() == root ? in(tensor) : out(tensor)},
        [this, root](const Tensors& staged) { return host_->broadcast(staged[0].on_host, root); });
  }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return add({out(output), in(input)}, [this](const Tensors& staged) {
      return host_->all_gather(staged[0].on_host, staged[1].on_host);
    });
  }
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return add({out(output), in(input)}, [this, root](const Tensors& staged) {
      return host_->gather(staged[0].on_host, staged[1].on_host, root);
    });
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override {
    return add({out(output), in(input)}, [this, root](const Tensors& staged) {
      return host_->scatter(staged[0].on_host, staged[1].on_host, root);
    });
  }
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override {
    return add({out(output), in(input)}, [this, op](const Tensors& staged) {
      return host_->reduce_scatter(staged[0].on_host, staged[1].on_host, op);
    });
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return add({out(output), in(input)}, [this](const Tensors& staged) {
      return host_->all_to_all(staged[0].on_host, staged[1].on_host);
    });
  }
  Work send(const torch::Tensor& tensor, int to, int tag) override {
    return add({in(tensor)},
        [this, to, tag](const Tensors& staged) { return host_->send(staged[0].on_host, to, tag); });
  }
  Work recv(const torch::Tensor& tensor, int from, int tag) override {
    const auto begin = [this, from, tag](const Tensors& staged) {
      return host_->recv(staged[0].on_host, from, tag);
    };
    return add({out(tensor)}, begin, StagedCall::Turn::kReceived);
  }
  Work barrier() override {
    return add({}, [this](const Tensors&) { return host_->barrier(); });
  }

  // Between two collectives of `host`, as all ranks come here after the same calls.
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override {
    barrier().wait();
    return make_staged_backend(host_->subgroup(members), type_);
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string& reason) override { host_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return host_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { host_->set_timeout(timeout); }

 private:
  Work add(Tensors tensors, StagedCall::Begin begin,
      StagedCall::Turn turn = StagedCall::Turn::kAnyOther) {
    auto call = std::make_shared<StagedCall>(std::move(tensors), std::move(begin), turn);
    thread_.add(call);
    return Work(std::move(call));
  }

  std::shared_ptr<Backend> host_;
  torch::DeviceType type_;
  StagingThread thread_;  // the last, so that it ends first
};

}  // namespace

std::shared_ptr<Backend> make_staged_backend(
    std::shared_ptr<Backend> host, torch::DeviceType type) {
  return std::make_shared<StagedBackend>(std::move(host), type);
}

}  // namespace lockstep
