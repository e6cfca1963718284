#include "lockstep/comm/device/device_backends.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<torch::DeviceType, MakeDeviceBackend> makers = {{torch::kCUDA, &make_nccl_backend}};

  static Registry& get() {
    static Registry registry;
    return registry;
  }
};

MakeDeviceBackend maker_of(torch::DeviceType type) {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.makers.find(type);
  return found == registry.makers.end() ? nullptr : found->second;
}

using Engines = std::vector<std::shared_ptr<Backend>>;

// Staged tensors take a group of their own, whatever their device: its collectives come in another
// order than those of the host.
Engines make_engines(Backend& host, const std::vector<torch::Device>& devices) {
  Engines engines;
  const MakeDeviceBackend make = maker_of(devices.front().type());
  if (make != nullptr) {
    for (const torch::Device& device : devices) engines.push_back(make(host, device));
    return engines;
  }
  std::vector<int> everyone(static_cast<std::size_t>(host.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  engines.push_back(make_staged_backend(host.subgroup(everyone), devices.front().type()));
  return engines;
}

class RoutedBackend final : public Backend {
 public:
  RoutedBackend(std::shared_ptr<Backend> host, std::vector<torch::Device> devices)
      : Backend(host->rank(), host->size()),
        host_(std::move(host)),
        devices_(std::move(devices)),
        engines_(make_engines(*host_, devices_)) {}

  std::string name() const override { return host_->name(); }
  std::string device_name() const override { return engines_.front()->name(); }
  bool carries(torch::Device device) const override { return of(device).carries(device); }
  bool sums_in_rank_order() const override {
    return std::ranges::all_of(
        engines_, [](const auto& engine) { return engine->sums_in_rank_order(); });
  }
  std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const override {
    return of(device).reduced_as(device, type, op);
  }
  void abort(const std::string& reason) override {
    for (const auto& engine : engines_) engine->abort(reason);
    host_->abort(reason);
  }
  std::chrono::milliseconds timeout() const override { return host_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override {
    host_->set_timeout(timeout);
    for (const auto& engine : engines_) engine->set_timeout(timeout);
  }

 protected:
  Work begin(const CollectiveCall& call) override {
    if (call.kind == Operation::kBarrier) return host_->run(call);
    return of(call.tensor().device()).run(call);
  }
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override {
    return make_routed_backend(host_->subgroup(members), devices_);
  }
  torch::Tensor make_empty(std::int64_t elements, const torch::TensorOptions& options) override {
    return of(options.device()).empty(elements, options);
  }

 private:
  // Of a device that none carries, one that says so.
  Backend& of(torch::Device device) const {
    if (device.is_cpu()) return *host_;
    for (const auto& engine : engines_)
      if (engine->carries(device)) return *engine;
    return *engines_.front();
  }

  std::shared_ptr<Backend> host_;
  std::vector<torch::Device> devices_;
  Engines engines_;
};

}  // namespace

MakeDeviceBackend register_device_backend(torch::DeviceType type, MakeDeviceBackend make) {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  return std::exchange(registry.makers[type], make);
}

std::shared_ptr<Backend> make_routed_backend(
    std::shared_ptr<Backend> host, const std::vector<torch::Device>& devices) {
  return std::make_shared<RoutedBackend>(std::move(host), devices);
}

}  // namespace lockstep
