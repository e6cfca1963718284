#include "lockstep/nn/exported/squeeze_excite_fusion.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/record_function.h>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/fused/squeeze_excite.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::exported {
namespace {

using at::Tensor;
using c10::IValue;
using fused::Activation;
using fused::Gate;

/// The arguments of the step: those of batch_norm, and behind them weights and biases of the
/// layers, and the functions' numbers.
struct ExcitationArguments {
  enum : std::size_t {
    kMaps,
    kWeight,
    kBias,
    kMovedMean,
    kMovedVariance,
    kTraining,
    kMomentum,
    kEps,
    kCudnn,
    kFirstWeight,
    kFirstBias,
    kSecondWeight,
    kSecondBias,
    kActivation,
    kBetween,
    kGate,
    kCount
  };
};
using Of = ExcitationArguments;

Tensor tensor_or_none(const IValue& value) { return value.toOptional<Tensor>().value_or(Tensor()); }

fused::BatchNormArguments norm_of(const std::vector<IValue>& stack) {
  return {.input = stack[Of::kMaps].toTensor(),
      .weight = tensor_or_none(stack[Of::kWeight]),
      .bias = tensor_or_none(stack[Of::kBias]),
      .running_mean = tensor_or_none(stack[Of::kMovedMean]),
      .running_var = tensor_or_none(stack[Of::kMovedVariance]),
      .momentum = stack[Of::kMomentum].toDouble(),
      .eps = stack[Of::kEps].toDouble()};
}

fused::SqueezeExciteLayers layers_of(const std::vector<IValue>& stack) {
  return {.first_weight = stack[Of::kFirstWeight].toTensor(),
      .first_bias = stack[Of::kFirstBias].toTensor(),
      .second_weight = stack[Of::kSecondWeight].toTensor(),
      .second_bias = stack[Of::kSecondBias].toTensor(),
      .between = static_cast<Activation>(stack[Of::kBetween].toInt()),
      .gate = static_cast<Gate>(stack[Of::kGate].toInt())};
}

// The images are shared out to threads; the nodes share out pixels.
bool is_squeeze_excite_faster(const Tensor& maps) { return maps.size(0) >= at::get_num_threads(); }

// Where a rule for batch norm computes it, the rest is LibTorch's.
bool own_squeeze_excite_step(std::vector<IValue>& stack) {
  if (kernels_in_use() == Kernels::kLibTorch || at::autocast::is_autocast_enabled(at::kCPU) ||
      !stack[Of::kTraining].toBool())
    return false;
  const auto norm = norm_of(stack);
  const auto layers = layers_of(stack);
  if (!fused::is_squeeze_excite_own(norm, layers)) return false;
  if (kernels_in_use() == Kernels::kAuto && !is_squeeze_excite_faster(norm.input)) return false;
  const fused::AfterBatchNorm after{
      .activation = static_cast<Activation>(stack[Of::kActivation].toInt()), .excitation = &layers};
  RECORD_FUNCTION(
      "lockstep::squeeze_excite", c10::ArrayRef<const IValue>({norm.input, layers.first_weight}));
  auto [maps, is_done] = fused::batch_norm_before(after, [&] {
    return at::batch_norm(norm.input, norm.weight, norm.bias, norm.running_mean, norm.running_var,
        /*training=*/true, norm.momentum, norm.eps, stack[Of::kCudnn].toBool());
  });
  if (!is_done)
    maps = fused::squeeze_excite(fused::activate(std::move(maps), after.activation), layers);
  stack.assign({std::move(maps)});
  return true;
}

bool is_list_of(const Operand& operand, std::int64_t wanted) {
  if (operand.kind != Operand::Kind::kConstant) return false;
  if (operand.constant.isInt()) return operand.constant.toInt() == wanted;
  if (!operand.constant.isIntList()) return false;
  const auto items = operand.constant.toIntVector();
  return std::ranges::all_of(items, [=](std::int64_t item) { return item == wanted; });
}

bool is_mean_of_pixels(const Step& step) {
  if (calls(step, "aten::adaptive_avg_pool2d")) return is_list_of(step.operands[1], 1);
  if (!calls(step, "aten::mean", "dim")) return false;
  const IValue &dimensions = step.operands[1].constant, &keeps = step.operands[2].constant,
               &type = step.operands[3].constant;
  const bool is_of_pixels =
      dimensions.isIntList() && (dimensions == IValue(std::vector<std::int64_t>{2, 3}) ||
                                    dimensions == IValue(std::vector<std::int64_t>{-2, -1}));
  return is_of_pixels && keeps.isBool() && keeps.toBool() && type.isNone();
}

// Of one pixel; that the kernel is 1x1 is seen when it runs.
bool may_be_pointwise(const Step& step) {
  return calls(step, "aten::conv2d") && is_value(step.operands[1]) && is_value(step.operands[2]) &&
         is_list_of(step.operands[3], 1) && is_list_of(step.operands[4], 0) &&
         is_list_of(step.operands[6], 1);
}

std::optional<Gate> known_gate(const Step& step) {
  if (calls(step, "aten::sigmoid") || calls(step, "aten::sigmoid_")) return Gate::kSigmoid;
  if (calls(step, "aten::hardsigmoid") || calls(step, "aten::hardsigmoid_"))
    return Gate::kHardsigmoid;
  return std::nullopt;
}

/// Seven steps in a row.
struct ExcitationNodes {
  enum : std::size_t { kNorm, kMean, kFirst, kBetween, kSecond, kGate, kProduct, kCount };
  std::span<Step> steps;
  const std::vector<std::size_t>& uses;

  bool are_block() const {
    const Step& norm = steps[kNorm];
    return calls(norm, "aten::batch_norm") && norm.behind != BehindNorm::kAddAndRelu &&
           norm.behind != BehindNorm::kAddInPlaceAndRelu && is_mean_of_pixels(steps[kMean]) &&
           may_be_pointwise(steps[kFirst]) &&
           known_activation(steps[kBetween]) != BehindNorm::kNothing &&
           may_be_pointwise(steps[kSecond]) && known_gate(steps[kGate]) &&
           calls(steps[kProduct], "aten::mul", "Tensor") && is_chain();
  }

  Step joined() const {
    Step step{.own = own_squeeze_excite_step,
        .operands = steps[kNorm].operands,
        .results = steps[kProduct].results,
        .text = steps[kProduct].text,
        .modules = steps[kProduct].modules};
    for (const std::size_t layer : {kFirst, kSecond})
      for (const std::size_t parameter : {1U, 2U})
        step.operands.push_back(steps[layer].operands[parameter]);
    add_number(step, activation_of(steps[kNorm].behind));
    add_number(step, activation_of(known_activation(steps[kBetween])));
    add_number(step, *known_gate(steps[kGate]));
    for (Step& node : steps) step.nodes.push_back(std::move(node));
    return step;
  }

 private:
  template <typename Function>
  static void add_number(Step& step, Function function) {
    step.operands.push_back({.constant = static_cast<std::int64_t>(function)});
  }

  // A step whose only result is read by the next one alone; the norm's also by the product.
  bool is_chain() const {
    for (std::size_t i = kNorm; i < kProduct; ++i) {
      if (!is_plain(steps[i]) || uses[index_of(i)] != (i == kNorm ? 2U : 1U)) return false;
      if (i + 1 < kProduct && !is_of(steps[i + 1].operands[0], i)) return false;
    }
    const auto& factors = steps[kProduct].operands;
    return is_plain(steps[kProduct]) && ((is_of(factors[0], kNorm) && is_of(factors[1], kGate)) ||
                                            (is_of(factors[0], kGate) && is_of(factors[1], kNorm)));
  }

  static bool is_plain(const Step& step) {
    if (!step.nodes.empty() || step.only_in_training_of || step.results.size() != 1) return false;
    const auto* const place = std::get_if<Place>(&step.results.front());
    return place != nullptr && *place != kNowhere;
  }

  Place result(std::size_t node) const { return std::get<Place>(steps[node].results.front()); }
  std::size_t index_of(std::size_t node) const { return static_cast<std::size_t>(result(node)); }

  bool is_of(const Operand& operand, std::size_t node) const {
    return is_value(operand) && operand.place == result(node);
  }
};

}  // namespace

void fuse_squeeze_excite(GraphParts& graph) {
  const auto uses = uses_of(graph);
  std::vector<Step> left;
  for (std::size_t i = 0; i < graph.steps.size();) {
    const std::size_t end = i + ExcitationNodes::kCount;
    if (end <= graph.steps.size()) {
      const ExcitationNodes nodes{std::span(graph.steps).subspan(i, ExcitationNodes::kCount), uses};
      if (nodes.are_block()) {
        left.push_back(nodes.joined());
        i = end;
        continue;
      }
    }
    left.push_back(std::move(graph.steps[i++]));
  }
  graph.steps = std::move(left);
}

}  // namespace lockstep::nn::exported
