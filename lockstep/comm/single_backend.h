#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/forgotten_init.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// A group of one: reductions change nothing, the rest copies input to output.
class SingleBackend : public Backend {
 public:
  /// `asked_for`: somebody said that the group has one rank; else, it may be an oversight.
  explicit SingleBackend(bool asked_for = true) : asked_for_(asked_for) {}

  std::string name() const override { return "single"; }
  int rank() const override { return 0; }
  int size() const override {
    if (!asked_for_) warn_if_init_is_forgotten();
    return 1;
  }
  bool carries(torch::Device) const override { return true; }
  bool sums_in_rank_order() const override { return true; }

  Work all_reduce(const torch::Tensor&, ReduceOp) override { return {}; }
  Work reduce(const torch::Tensor&, int, ReduceOp) override { return {}; }
  Work broadcast(const torch::Tensor&, int) override { return {}; }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override {
    return copy(output, input);
  }
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int) override {
    return copy(output, input);
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int) override {
    return copy(output, input);
  }
  Work reduce_scatter(const torch::Tensor& output, const torch::Tensor& input, ReduceOp) override {
    return copy(output, input);
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override {
    return copy(output, input);
  }
  Work send(const torch::Tensor&, int, int) override {
    throw InvalidArgument("send: a group of one has no other rank");
  }
  Work recv(const torch::Tensor&, int, int) override {
    throw InvalidArgument("recv: a group of one has no other rank");
  }
  Work barrier() override { return {}; }

  std::shared_ptr<Backend> subgroup(const std::vector<int>&) override {
    return std::make_shared<SingleBackend>();
  }
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return torch::empty({elements}, options);
  }
  void abort(const std::string&) override {}
  std::chrono::milliseconds timeout() const override { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

 private:
  static Work copy(const torch::Tensor& output, const torch::Tensor& input) {
    output.view(-1).copy_(input.view(-1));
    return {};
  }

  bool asked_for_;
  std::chrono::milliseconds timeout_ = std::chrono::minutes(5);
};

}  // namespace lockstep
