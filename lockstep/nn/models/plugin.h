#pragma once

// What a shared library with nets of your own includes; it needs LibTorch and this library's
// headers, and links nothing of ours. See docs/plugins.md.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>
#include <torch/version.h>

#include "lockstep/nn/models/layers.h"
#include "lockstep/nn/models/plugin_task.h"

namespace lockstep::nn {

/// The most tensors that a sample may consist of.
inline constexpr std::size_t kMostInputs = 8;

/// One of the tensors that a sample consists of.
struct PluginInput {
  std::string name;                        ///< for messages and pages
  std::vector<std::int64_t> shape = {};    ///< of one sample; none: it is a number
  torch::ScalarType type = torch::kFloat;  ///< or kLong, which is int64
};

/// The memory of one sample, for a set to fill: of each input all numbers, row by row.
class PluginSample {
 public:
  /// Takes the inputs, and where the numbers of each lie.
  PluginSample(const std::vector<PluginInput>& inputs, std::span<void* const> memory)
      : inputs_(inputs), memory_(memory) {}

  /// Returns the numbers of an input, counted from 0. Throws std::exception for one of int64.
  std::span<float> floats(std::size_t input) const { return numbers<float>(input, torch::kFloat); }

  /// Returns the numbers of an input of int64. Throws std::exception for one of float.
  std::span<std::int64_t> integers(std::size_t input) const {
    return numbers<std::int64_t>(input, torch::kLong);
  }

 private:
  template <typename Number>
  std::span<Number> numbers(std::size_t place, torch::ScalarType type) const {
    if (place >= inputs_.size())
      throw std::out_of_range(c10::str("it has ", inputs_.size(), " inputs, and none ", place));
    const PluginInput& input = inputs_[place];
    if (input.type != type)
      throw std::invalid_argument(c10::str("the input ", input.name, " is of ", input.type,
          ": write ", type == torch::kFloat ? "integers" : "floats", "(", place, ")"));
    return {static_cast<Number*>(memory_[place]),
        static_cast<std::size_t>(c10::multiply_integers(input.shape))};
  }

  const std::vector<PluginInput>& inputs_;
  std::span<void* const> memory_;
};

/// Whether a module's forward takes that many tensors. A Sequential takes one: whatever it is given
/// compiles.
template <typename Module, std::size_t... Place>
constexpr bool takes_tensors(std::index_sequence<Place...>) {
  if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, Module>) {
    return sizeof...(Place) == 1;
  } else {
    return requires(Module & module, std::vector<torch::Tensor> & inputs) {
      { module.forward(std::move(inputs[Place])...) } -> std::convertible_to<torch::Tensor>;
    };
  }
}

/// Calls a module's forward with these tensors, of which there are `count` or more. Throws
/// std::invalid_argument where it does not take as many.
template <typename Module, std::size_t count = 1>
torch::Tensor forward_with(Module& module, std::vector<torch::Tensor>& inputs) {
  using Places = std::make_index_sequence<count>;
  if constexpr (takes_tensors<Module>(Places())) {
    const auto call = [&]<std::size_t... Place>(std::index_sequence<Place...>) {
      return module.forward(std::move(inputs[Place])...);
    };
    if (inputs.size() == count) return call(Places());
  }
  if constexpr (count < kMostInputs) return forward_with<Module, count + 1>(module, inputs);
  throw std::invalid_argument(c10::str("its forward does not take ", inputs.size(), " tensors"));
}

/// Returns the numbers of tensors that a module's forward can be called with.
template <typename Module>
std::vector<std::size_t> tensors_taken() {
  return []<std::size_t... Place>(std::index_sequence<Place...>) {
    static_assert((takes_tensors<Module>(std::make_index_sequence<Place + 1>()) || ...),
        "forward must take tensors, 1 to 8 of them, and return one");
    std::vector<std::size_t> counts;
    ((takes_tensors<Module>(std::make_index_sequence<Place + 1>()) ? counts.push_back(Place + 1)
                                                                   : void()),
        ...);
    return counts;
  }
  (std::make_index_sequence<kMostInputs>());
}

/// A net that a plugin has made: any module, reached without knowing its type.
struct PluginNet {
  std::shared_ptr<torch::nn::Module> module;
  /// Takes the tensors of the samples of a batch, in the order of the set's inputs.
  std::function<torch::Tensor(std::vector<torch::Tensor>)> forward;
  std::vector<std::size_t> takes;  ///< numbers of tensors that forward can be called with
  Layers layers;                   ///< the chain that the module is; empty if it is none
};

/// A net that a plugin offers.
struct PluginModel {
  std::string name;
  std::function<PluginNet(std::int64_t classes)> make;
};

/// A labelled set of a plugin. Several threads call its functions at a time.
struct PluginSet {
  std::int64_t size = 0;
  std::int64_t classes = 0;
  std::array<std::int64_t, 3> shape = {};  ///< of a sample: channels, height, width
  std::function<std::int64_t(std::int64_t index)> label = {};  ///< the class, from 0
  /// Writes the numbers of a sample, height x width x channels.
  std::function<void(std::int64_t index, std::span<float> numbers)> read = {};

  /// The tensors that a sample consists of, where it is no image; then read_inputs() writes them,
  /// and shape and read() are left out.
  std::vector<PluginInput> inputs = {};
  std::function<void(std::int64_t index, const PluginSample& sample)> read_inputs = {};
};

/// The two parts of a data set.
struct PluginParts {
  PluginSet train, test;
};

/// A data set that a plugin offers.
struct PluginData {
  std::string name;
  std::function<PluginParts(const std::string& folder)> open;  ///< empty where none was given
};

/// A loss that a plugin offers. Several threads call it at a time.
struct PluginLoss {
  std::string name;
  /// Returns the mean over the samples, a tensor of no dimension, from scores [samples, classes] in
  /// float and labels [samples] in int64.
  std::function<torch::Tensor(const torch::Tensor& scores, const torch::Tensor& labels)> mean;
};

/// Everything that a plugin offers. A library made for another version is asked for `made_for` and
/// nothing else.
struct PluginContents {
  const char* made_for;
  std::vector<PluginModel> models;
  std::vector<PluginData> sets;
  std::vector<PluginLoss> losses;
  std::vector<PluginTask> tasks;
};

#define LOCKSTEP_TEXT_OF(value) #value
#define LOCKSTEP_TEXT(value) LOCKSTEP_TEXT_OF(value)

/// What a plugin and the program that loads it must have in common. The first number counts the
/// forms that PluginContents has had, the last says which std::string the standard library has.
inline constexpr const char* kPluginAbi =
    "plugin 4, LibTorch " TORCH_VERSION ", CXX11 ABI " LOCKSTEP_TEXT(_GLIBCXX_USE_CXX11_ABI);

/// Returns what this library offers. Hidden: g++ would make one for all libraries of a process.
__attribute__((visibility("hidden"))) inline PluginContents& plugin_contents() {
  static PluginContents contents{kPluginAbi, {}, {}, {}, {}};
  return contents;
}

/// Returns the layers of a Sequential, by the names that it gives their parameters.
inline Layers chain_of(torch::nn::SequentialImpl& net) {
  Layers layers;
  auto layer = net.begin();
  for (const auto& child : net.named_children()) layers.insert(child.key(), *layer++);
  return layers;
}

/// Returns a module as a plugin's net.
template <typename Module>
PluginNet plugin_net(std::shared_ptr<Module> module) {
  PluginNet net;
  net.module = module;
  net.forward = [module](std::vector<torch::Tensor> in) { return forward_with(*module, in); };
  net.takes = tensors_taken<Module>();
  if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, Module>)
    net.layers = chain_of(*module);
  return net;
}

template <typename Module>
PluginNet plugin_net(const torch::nn::ModuleHolder<Module>& holder) {
  return plugin_net(holder.ptr());
}

}  // namespace lockstep::nn

/// The one function that the command looks for.
extern "C" __attribute__((visibility("default"))) inline const lockstep::nn::PluginContents*
lockstep_plugin() {
  return &lockstep::nn::plugin_contents();
}

namespace lockstep::nn {

/// A net, a data set, a loss or a task that joins what this library offers, when that is loaded.
struct Offer {
  template <typename Factory>
  static Offer model(std::string name, Factory factory) {
    plugin_contents().models.push_back(
        {std::move(name), [factory](std::int64_t n) { return plugin_net(factory(n)); }});
    return {};
  }

  static Offer data(std::string name, std::function<PluginParts(const std::string&)> open) {
    plugin_contents().sets.push_back({std::move(name), std::move(open)});
    return {};
  }

  static Offer loss(std::string name,
      std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> mean) {
    plugin_contents().losses.push_back({std::move(name), std::move(mean)});
    return {};
  }

  template <typename Function>
  static Offer task(std::string name, Function function) {
    return task(std::move(name), TaskTurn{"", task_of_net(std::function(std::move(function)))});
  }

  template <std::same_as<TaskTurn>... Others>
  static Offer task(std::string name, TaskTurn first, Others... others) {
    plugin_contents().tasks.push_back({std::move(name), {std::move(first), std::move(others)...}});
    return {};
  }

  const PluginContents* (*library)() = lockstep_plugin;  // makes the compiler emit it
};

}  // namespace lockstep::nn

#define LOCKSTEP_UNIQUE_OF(line) lockstep_offered_##line
#define LOCKSTEP_UNIQUE(line) LOCKSTEP_UNIQUE_OF(line)

/// Offers a net to `lockstep train --plugin FILE --model NAME`. The factory takes the number of
/// classes and returns a module (a holder or a shared pointer) whose forward takes a batch of
/// images, or the tensors of a set that names its inputs, and returns scores [N, classes]. A
/// torch::nn::Sequential can be cut into stages.
///
///     LOCKSTEP_MODEL("mine", [](std::int64_t classes) { return MyNet(classes); })
#define LOCKSTEP_MODEL(name, ...)                                              \
  [[gnu::used]] static const ::lockstep::nn::Offer LOCKSTEP_UNIQUE(__LINE__) = \
      ::lockstep::nn::Offer::model(name, __VA_ARGS__);

/// Offers a data set to `lockstep train --plugin FILE --data NAME[:DIR]`. The function takes DIR
/// and returns the parts; what it throws ends the command with code 3.
///
///     LOCKSTEP_DATA("mine", [](const std::string& folder) { return opened(folder); })
#define LOCKSTEP_DATA(name, ...)                                               \
  [[gnu::used]] static const ::lockstep::nn::Offer LOCKSTEP_UNIQUE(__LINE__) = \
      ::lockstep::nn::Offer::data(name, __VA_ARGS__);

/// Offers a loss to `lockstep train --plugin FILE --loss NAME`. The function takes scores [N,
/// classes] in float and labels [N], and returns the mean over the N samples as a tensor of no
/// dimension, computed by LibTorch's operators so that it has a gradient. N is that of a
/// micro-batch, of the last batch or 1, too.
///
///     LOCKSTEP_LOSS("mine", [](const torch::Tensor& scores, const torch::Tensor& labels) {
///       return torch::multi_margin_loss(scores, labels);
///     })
#define LOCKSTEP_LOSS(name, ...)                                               \
  [[gnu::used]] static const ::lockstep::nn::Offer LOCKSTEP_UNIQUE(__LINE__) = \
      ::lockstep::nn::Offer::loss(name, __VA_ARGS__);

/// Offers a task to `lockstep train --plugin FILE --task NAME`: what is learned, and what is
/// measured. The function takes the net, as the type of a module of the plugin, or as a TaskNet,
/// which any --model is; and a batch. It returns the mean loss of the samples, and other means by
/// name. It is called in training, and in evaluations without gradients. In the function's place
/// there may be several turns, see turn().
///
///     LOCKSTEP_TASK("mine", [](MyNetImpl& net, const lockstep::nn::TaskBatch& batch) {
///       const torch::Tensor errors = net.forward(batch.input()) - batch.target();
///       return lockstep::nn::TaskResult{
///           .loss = errors.square().mean(), .numbers = {{"off", errors.abs().mean()}}};
///     })
#define LOCKSTEP_TASK(name, ...)                                               \
  [[gnu::used]] static const ::lockstep::nn::Offer LOCKSTEP_UNIQUE(__LINE__) = \
      ::lockstep::nn::Offer::task(name, __VA_ARGS__);
