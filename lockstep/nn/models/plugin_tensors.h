#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/plugin.h"

namespace lockstep::nn {

/// Returns samples that lie in memory as a plugin's set: `samples` [N, channels, height, width] of
/// any numbers, `labels` [N] with the classes from 0; there are as many as the highest says, or as
/// `classes` says. Throws std::invalid_argument if the shapes are others.
inline PluginSet set_of(
    const torch::Tensor& samples, const torch::Tensor& labels, std::int64_t classes = 0) {
  if (samples.dim() != 4 || labels.dim() != 1 || labels.size(0) != samples.size(0) ||
      samples.numel() == 0)
    throw std::invalid_argument(
        c10::str("set_of: samples must be [N, channels, height, width] and labels [N], not ",
            samples.sizes(), " and ", labels.sizes()));
  // As read() writes them.
  const auto numbers =
      samples.detach().to(torch::kCPU, torch::kFloat).permute({0, 2, 3, 1}).contiguous();
  const auto each = labels.to(torch::kCPU, torch::kLong).contiguous();
  return {.size = samples.size(0),
      .classes = classes > 0 ? classes : each.max().item<std::int64_t>() + 1,
      .shape = {samples.size(1), samples.size(2), samples.size(3)},
      .label = [each](std::int64_t i) { return each.const_data_ptr<std::int64_t>()[i]; },
      .read =
          [numbers](std::int64_t i, std::span<float> out) {
            const auto* first =
                numbers.const_data_ptr<float>() + i * static_cast<std::int64_t>(out.size());
            std::memcpy(out.data(), first, out.size_bytes());
          }};
}

/// Returns samples of several tensors that lie in memory as a plugin's set: of each input its name
/// and [N, ...] numbers, floating point or whole ones; labels as above. Throws
/// std::invalid_argument if the shapes are others.
///
///     set_of({{"ids", ids}, {"mask", mask}}, labels)
inline PluginSet set_of(const std::vector<std::pair<std::string, torch::Tensor>>& inputs,
    const torch::Tensor& labels, std::int64_t classes = 0) {
  PluginSet set;
  std::vector<torch::Tensor> kept;
  for (const auto& [name, numbers] : inputs) {
    if (numbers.dim() < 1 || labels.dim() != 1 || numbers.size(0) != labels.size(0) ||
        numbers.numel() == 0)
      throw std::invalid_argument(c10::str("set_of: ", name,
          " must be [N, ...] and labels [N], not ", numbers.sizes(), " and ", labels.sizes()));
    const auto type = torch::isFloatingType(numbers.scalar_type()) ? torch::kFloat : torch::kLong;
    set.inputs.push_back({name, numbers.sizes().slice(1).vec(), type});
    kept.push_back(numbers.detach().to(torch::kCPU, type).contiguous());
  }
  const auto each = labels.to(torch::kCPU, torch::kLong).contiguous();
  set.size = each.numel();
  set.classes = classes > 0 ? classes : each.max().item<std::int64_t>() + 1;
  set.label = [each](std::int64_t i) { return each.const_data_ptr<std::int64_t>()[i]; };
  set.read_inputs = [kept](std::int64_t index, const PluginSample& sample) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto copy_to = [&]<typename Number>(std::span<Number> out) {
        const auto* first = kept[i].template const_data_ptr<Number>();
        std::memcpy(out.data(), first + index * std::ssize(out), out.size_bytes());
      };
      kept[i].scalar_type() == torch::kFloat ? copy_to(sample.floats(i))
                                             : copy_to(sample.integers(i));
    }
  };
  return set;
}

}  // namespace lockstep::nn
