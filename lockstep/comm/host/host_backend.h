#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/host/engine.h"

namespace lockstep::host {

/// Carries collectives between ranks on one host through shared memory. Two derived classes, for
/// threads and for processes, decide how memory is seen and how a region is shared.
class HostBackend : public Backend {
 public:
  int rank() const override { return rank_; }
  int size() const override { return region_->size(); }
  bool carries(torch::Device device) const override { return device.is_cpu(); }
  bool sums_in_rank_order() const override { return true; }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) override;
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) override;
  Work broadcast(const torch::Tensor& tensor, int root) override;
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) override;
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) override;
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) override;
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) override;
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) override;
  Work send(const torch::Tensor& tensor, int to, int tag) override {
    return engine_->send(tensor, to, tag);
  }
  Work recv(const torch::Tensor& tensor, int from, int tag) override {
    return engine_->recv(tensor, from, tag);
  }
  Work barrier() override;

  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) override;
  void abort(const std::string& reason) override { engine_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return engine_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { engine_->set_timeout(timeout); }

  /// Moves what it can of this rank's messages; returns whether some are still under way.
  bool advance_messages() { return engine_->advance_messages(); }

  const std::shared_ptr<SharedRegion>& shared_region() const { return region_; }

 protected:
  HostBackend(std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank);

  Engine& engine() { return *engine_; }
  SharedRegion& region() { return *region_; }
  /// Waits for this group and for the parent's advance each other from now on.
  void join(const HostBackend& parent) { engine_->join(parent.engine_->siblings()); }
  /// Shares a short text with all ranks of this group, through this group.
  std::vector<std::string> exchange(const std::string& text);

 private:
  std::shared_ptr<SharedRegion> region_;
  int rank_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace lockstep::host
