#pragma once

#include <memory>
#include <optional>
#include <tuple>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::nn {

/// Copies parameters, buffers, their memory formats, which of them want gradients, and the training
/// flags of all modules; gradients are not copied. Without a device each tensor stays where it is.
///
/// Throws Error that names the difference if the modules are not built alike.
void copy_state(const torch::nn::Module& source, torch::nn::Module& target,
    const std::optional<at::Device>& device);

/// A base that gives `Derived` a clone(): it constructs a new one from `arguments()` and copies the
/// state.
///
/// torch::nn::Cloneable cannot have a base of ours, and forgets which parameters are frozen.
/// As there, constructing draws from the default random generator. `Derived` has
/// `std::tuple<...> arguments() const`, those of its constructor.
template <typename Derived, typename Base = torch::nn::Module>
class CloneByArguments : public Base {
 public:
  using Base::Base;

  /// Makes a module of equal values with own storage, on the device if one is named.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    const auto make = [](const auto&... values) { return std::make_shared<Derived>(values...); };
    auto copy = std::apply(make, static_cast<const Derived&>(*this).arguments());
    copy_state(*this, *copy, device);
    return copy;
  }

 private:
  // A torch::nn::Cloneable that holds this module as a child calls this on its own new child.
  // NOLINTNEXTLINE(readability-identifier-naming): LibTorch's name.
  void clone_(torch::nn::Module& other, const std::optional<at::Device>& device) final {
    static_cast<Derived&>(*this) = dynamic_cast<Derived&>(*other.clone(device));
  }
};

}  // namespace lockstep::nn
