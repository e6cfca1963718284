#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/layers.h"

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

/// A net as what spreads a model calls it: with all the tensors of a batch.
class MultiInputModule : public torch::nn::Module {
 public:
  torch::Tensor forward(std::vector<torch::Tensor> inputs) {
    return forward_all(std::move(inputs));
  }

 private:
  virtual torch::Tensor forward_all(std::vector<torch::Tensor> inputs) = 0;
};

/// A net that turns a batch of images into one row of class scores (logits) each; clone() works.
class ModelImpl : public MultiInputModule {
 public:
  /// Takes [N, channels, height, width], or [N, features] for `toy`; returns [N, classes] without
  /// softmax. Runs the layers one after the other, nothing else.
  virtual torch::Tensor forward(torch::Tensor images) { return run_layers(layers_, images); }

  /// Returns the model as a chain of its own sub-modules, which share its parameters.
  ///
  /// The first layer, `input`, checks the images and lays them out as the others want them; a part
  /// of the model that begins later takes what the layers before it give.
  virtual Layers layers() const { return layers_; }

  /// Returns the numbers of tensors that a sample may consist of: one, but for nets of plugins.
  virtual std::vector<std::size_t> takes() const { return {1}; }

  /// Returns the names of the tensors that it takes, in their order; empty where they have none.
  virtual std::vector<std::string> input_names() const { return {}; }

  /// Returns the names of the numbers that the net itself computes beside its loss. Such a net
  /// takes inputs and targets, and returns one row [1, 2 + numbers]: the number of samples, the
  /// loss and the numbers, means over the samples; the loss has a gradient. Nothing for a net that
  /// returns scores.
  virtual std::optional<std::vector<std::string>> numbers() const { return {}; }

 protected:
  /// Appends a layer to the chain; the caller registers it if it has parameters.
  template <typename Layer>
  void append(std::string name, const Layer& layer) {
    layers_.insert(std::move(name), torch::nn::AnyModule(layer));
  }

  /// Registers a module under its name and appends it to the chain.
  template <typename Holder>
  void append_module(const std::string& name, const Holder& layer) {
    append(name, register_module(name, layer));
  }

 private:
  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override;

  Layers layers_;
};
TORCH_MODULE(Model);

/// The settings of a net beside its name.
struct NetSettings {
  double dropout = 0;  ///< of a language model
  /// Whether parameters are left empty: those of a language model, to be drawn by its draws(), and
  /// those of an exported one, to be read by its stored_parameters().
  bool is_filled_later = false;
};

/// Makes a net by its name, initialised as its source does, from the default random generator; of
/// `FILE.pt2` the exported program, with its own weights. The classes of a language model are its
/// vocabulary.
///
/// Names of parameters are Python's, so that weights can be exchanged. Throws InvalidArgument that
/// lists the names for an unknown one, and for settings that the net has not.
///
///     Model model = make_model("mnist-small", 10);
///     torch::Tensor logits = model(images);
Model make_model(const std::string& name, std::int64_t classes, const NetSettings& settings = {});

}  // namespace lockstep::nn
