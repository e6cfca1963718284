#pragma once

#include <concepts>
#include <ranges>
#include <string_view>
#include <tuple>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// Collects the tensors of a module's output: a tensor, or tuples, pairs, vectors, optionals and
/// dictionaries of such, nested as one likes. In anything else none are found.
template <typename Output>
void collect_tensors(const Output& output, std::vector<torch::Tensor>& tensors) {
  const auto collect = [&](const auto&... parts) { (collect_tensors(parts, tensors), ...); };
  if constexpr (std::convertible_to<const Output&, torch::Tensor>) {
    tensors.push_back(output);
  } else if constexpr (requires { std::tuple_size<Output>::value; }) {
    std::apply(collect, output);
  } else if constexpr (requires {
                         *output;
                         output.has_value();
                       }) {
    if (output.has_value()) collect(*output);
  } else if constexpr (requires {
                         output.key();
                         output.value();
                       }) {  // of torch::OrderedDict
    collect(output.value());
  } else if constexpr (
      std::ranges::range<const Output> && !std::convertible_to<const Output&, std::string_view>) {
    for (const auto& part : output) collect(part);
  }
}

}  // namespace lockstep
