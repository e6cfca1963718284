#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::nn {

/// A net of the kind `Base` around another one, a module holder: its parameters, buffers and
/// sub-modules are the other's, under their names. The other is moved and switched with it, and
/// cloned.
template <typename Base, typename Net>
class AroundNet : public Base {
 public:
  explicit AroundNet(Net net) : net_(std::move(net)) {
    for (const auto& item : net_->named_parameters(false))
      this->register_parameter(item.key(), item.value(), item.value().requires_grad());
    for (const auto& item : net_->named_buffers(false))
      this->register_buffer(item.key(), item.value());
    for (const auto& item : net_->named_children()) this->register_module(item.key(), item.value());
  }

  void train(bool on = true) override {
    Base::train(on);
    net_->train(on);
  }

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override {
    net_->to(device, dtype, non_blocking);
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override { net_->to(dtype, non_blocking); }
  void to(torch::Device device, bool non_blocking = false) override {
    net_->to(device, non_blocking);
  }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    auto net = std::dynamic_pointer_cast<typename Net::ContainedType>(net_->clone(device));
    auto copy = around(Net(std::move(net)));
    const auto from = this->modules(), to = copy->modules();
    for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
    return copy;
  }

 protected:
  Net& net() { return net_; }
  const Net& net() const { return net_; }

 private:
  /// Makes a copy of this around a copy of its net.
  virtual std::shared_ptr<torch::nn::Module> around(Net net) const = 0;

  Net net_;
};

}  // namespace lockstep::nn
