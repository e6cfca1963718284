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

/// Returns a tensor's numbers on the host in rows, as float or int64. Throws std::invalid_argument
/// that names the first number which that type does not hold: nothing is rounded in silence.
inline torch::Tensor exact_numbers(
    const char* what, const torch::Tensor& given, torch::ScalarType type) {
  const auto of = given.scalar_type();
  const bool is_whole = type == torch::kLong;
  if (c10::isComplexType(of) || (is_whole && c10::isFloatingType(of)))
    throw std::invalid_argument(c10::str("set_of: ", what, " of ", of, " must be ",
        is_whole ? "whole numbers; if they are, convert them by .to(torch::kLong)"
                 : "real numbers"));
  const auto numbers = given.detach().to(torch::kCPU);
  const auto kept = numbers.to(type).contiguous();
  // 16 bits, of whatever kind, fit into a float.
  if (of == type || (of != torch::kUInt64 && (is_whole || c10::elementSize(of) <= 2))) return kept;
  const auto wide = numbers.to(c10::isFloatingType(of) ? torch::kDouble : torch::kLong);
  const auto is_nan = wide.ne(wide);
  auto lost = kept.to(wide.scalar_type()).ne(wide).logical_and_(is_nan.logical_not());
  if (of == torch::kUInt64) lost.logical_or_(wide.lt(0));  // 2^63 and more
  if (!lost.any().item<bool>()) return kept;
  const auto first = lost.nonzero()[0];
  const auto* const place = first.const_data_ptr<std::int64_t>();
  auto number = wide;
  for (std::int64_t i = 0; i < first.numel(); ++i) number = number[place[i]];
  throw std::invalid_argument(
      c10::str("set_of: ", what, " of ", of, " do not fit into ", type, ": ", number.item(), " at ",
          torch::IntArrayRef(place, static_cast<std::size_t>(first.numel())),
          "; convert them by .to() if they may be rounded"));
}

/// Returns the labels [N] of a set as int64: classes from 0 to below `classes`, which is set to the
/// highest label and one where it is not above 0. Throws std::invalid_argument for others.
inline torch::Tensor class_labels(const torch::Tensor& labels, std::int64_t& classes) {
  const auto each = exact_numbers("labels", labels, torch::kLong);
  const auto highest = each.max().item<std::int64_t>();
  if (classes <= 0) classes = highest + 1;
  const auto wrong = each.lt(0).logical_or_(each.ge(classes)).nonzero();
  if (wrong.numel() == 0) return each;
  const auto first = wrong[0].item<std::int64_t>();
  throw std::invalid_argument(c10::str("set_of: sample ", first, " has the label ",
      each[first].item<std::int64_t>(), "; labels must be 0 to ", classes - 1));
}

/// Returns samples that lie in memory as a plugin's set: `samples` [N, channels, height, width],
/// `labels` [N] with the classes from 0, of a whole type; there are as many as the highest says, or
/// as `classes` says. Throws std::invalid_argument if the shapes are others, and for a number that
/// float would round: convert it yourself where that is meant.
inline PluginSet set_of(
    const torch::Tensor& samples, const torch::Tensor& labels, std::int64_t classes = 0) {
  if (samples.dim() != 4 || labels.dim() != 1 || labels.size(0) != samples.size(0) ||
      samples.numel() == 0)
    throw std::invalid_argument(
        c10::str("set_of: samples must be [N, channels, height, width] and labels [N], not ",
            samples.sizes(), " and ", labels.sizes()));
  // As read() writes them.
  const auto numbers =
      exact_numbers("samples", samples, torch::kFloat).permute({0, 2, 3, 1}).contiguous();
  const auto each = class_labels(labels, classes);
  return {.size = samples.size(0),
      .classes = classes,
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
/// and [N, ...] numbers, floating point, which are kept as float, or whole ones, as int64; labels
/// and errors as above.
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
    const bool is_whole = c10::isIntegralType(numbers.scalar_type(), /*includeBool=*/true);
    const auto type = is_whole ? torch::kLong : torch::kFloat;
    set.inputs.push_back({name, numbers.sizes().slice(1).vec(), type});
    kept.push_back(exact_numbers(name.c_str(), numbers, type));
  }
  const auto each = class_labels(labels, classes);
  set.size = each.numel();
  set.classes = classes;
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
