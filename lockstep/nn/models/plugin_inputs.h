#pragma once

// Samples of several tensors, in a plugin: what a set says of them, and how a net is called with
// them. Part of plugin.h.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

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

}  // namespace lockstep::nn
