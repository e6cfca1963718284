#include "lockstep/nn/exported/fusion.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tanh.h>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/joined_maps_fusion.h"
#include "lockstep/nn/exported/language_fusion.h"
#include "lockstep/nn/exported/lstm_fusion.h"
#include "lockstep/nn/exported/squeeze_excite_fusion.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/fused/gelu.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn::exported {
namespace {

constexpr std::size_t kInput = 0, kRunningMean = 3, kRunningVar = 4;  // of a batch norm

bool is_relu(const Step& step) { return known_activation(step) == BehindNorm::kRelu; }

bool is_one(const Operand& operand) {
  return operand.kind == Operand::Kind::kConstant && operand.constant.isScalar() &&
         operand.constant.toScalar().equal(1);
}

bool reads(const Operand& operand, Place place) {
  const bool is_it = operand.kind == Operand::Kind::kValue && operand.place == place;
  return is_it || std::ranges::any_of(
                      operand.items, [=](const Operand& item) { return reads(item, place); });
}

bool reads(const Step& step, Place place) {
  return std::ranges::any_of(
      step.operands, [=](const Operand& operand) { return reads(operand, place); });
}

bool returns_own_memory(const Step& step) {
  return step.operation &&
         std::ranges::none_of(step.operation->schema().returns(),
             [](const c10::Argument& result) { return result.alias_info() != nullptr; });
}

/// A step of GPT-2's GELU. Its operands are positive numbers, the input x, or the result of an
/// earlier step, the number of which (from 1) is negative.
struct StepOfGelu {
  std::string_view name, overload;
  std::array<double, 2> operands;
};
constexpr double kInputOfGelu = 0, kAbsent = std::numeric_limits<double>::infinity();
constexpr std::array<StepOfGelu, 8> kGelu{{{"aten::mul", "Tensor", {kInputOfGelu, 0.5}},
    {"aten::pow", "Tensor_Scalar", {kInputOfGelu, 3}}, {"aten::mul", "Tensor", {-2, 0.044715}},
    {"aten::add", "Tensor", {kInputOfGelu, -3}}, {"aten::mul", "Tensor", {-4, 0.7978845608028654}},
    {"aten::tanh", "", {-5, kAbsent}}, {"aten::add", "Tensor", {-6, 1}},
    {"aten::mul", "Tensor", {-1, -7}}}};

// As the nodes say, so that nothing of ours computes where LibTorch is to.
at::Tensor gelu_by_nodes(const at::Tensor& x) {
  return x * kGelu[0].operands[1] *
         (at::tanh((x + at::pow(x, 3) * kGelu[2].operands[1]) * kGelu[4].operands[1]) + 1);
}

bool joined_gelu_step(std::vector<c10::IValue>& stack) {
  const at::Tensor& input = stack.front().toTensor();
  auto result = kernels_in_use() == Kernels::kLibTorch ? gelu_by_nodes(input)
                                                       : fused::gelu(input, fused::GeluForm::kTanh);
  stack.assign({std::move(result)});
  return true;
}

/// A batch norm, and the steps behind it.
struct Block {
  std::size_t norm, last;  ///< indices
  std::optional<std::size_t> addition;
  std::optional<Operand> addend;
};

class Fusion {
 public:
  explicit Fusion(GraphParts& graph)
      : graph_(graph), is_gone_(graph.steps.size()), uses_(uses_of(graph)) {}

  void run() {
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      if (is_gone_[i]) continue;
      if (is_end_of_gelu(i)) join_gelu(i);
      if (!calls(graph_.steps[i], "aten::batch_norm")) continue;
      const auto block = block_at(i);
      if (block && can_move(*block)) join(*block);
    }
    std::vector<Step> left;
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      if (!is_gone_[i]) left.push_back(std::move(graph_.steps[i]));
    }
    graph_.steps = std::move(left);
  }

 private:
  // The step that alone reads the only result of another.
  std::optional<std::size_t> only_reader(std::size_t index) const {
    const auto* const place = std::get_if<Place>(&graph_.steps[index].results.front());
    if (place == nullptr || *place == kNowhere || uses_[static_cast<std::size_t>(*place)] != 1)
      return std::nullopt;
    for (std::size_t i = index + 1; i < graph_.steps.size(); ++i) {
      if (!is_gone_[i] && reads(graph_.steps[i], *place)) return i;
    }
    return std::nullopt;  // the graph returns it
  }

  std::optional<Block> block_at(std::size_t norm) const {
    const auto next = only_reader(norm);
    if (!next) return std::nullopt;
    if (known_activation(graph_.steps[*next]) != BehindNorm::kNothing)
      return Block{norm, *next, std::nullopt, std::nullopt};
    const auto addend = addend_of(graph_.steps[*next], result_of(norm));
    const auto last = addend ? only_reader(*next) : std::nullopt;
    if (!last || *last != *next + 1 || !is_relu(graph_.steps[*last])) return std::nullopt;
    return Block{norm, *last, next, addend};
  }

  Place result_of(std::size_t index) const {
    return std::get<Place>(graph_.steps[index].results.front());
  }

  // In place only if it is the norm's result that is changed.
  static std::optional<Operand> addend_of(const Step& step, Place norm) {
    const bool is_in_place = calls(step, "aten::add_", "Tensor");
    if (!is_in_place && !calls(step, "aten::add", "Tensor")) return std::nullopt;
    const Operand &first = step.operands[0], &second = step.operands[1];
    if (!is_one(step.operands[2]) || !is_value(first) || !is_value(second)) return std::nullopt;
    if (first.place == norm) return second;
    return is_in_place ? std::nullopt : std::optional(first);
  }

  bool can_move(const Block& block) const {
    const Step& norm = graph_.steps[block.norm];
    if (!has_own_input(norm, block.norm)) return false;
    for (std::size_t i = block.norm + 1; i < block.last; ++i) {
      if (!is_gone_[i] && i != block.addition && !may_pass(graph_.steps[i], norm)) return false;
    }
    return true;
  }

  // Nothing but its own name is then another for its memory.
  bool has_own_input(const Step& norm, std::size_t index) const {
    const Operand& input = norm.operands[kInput];
    if (!is_value(input)) return false;
    for (std::size_t i = 0; i < index; ++i) {
      const Step& step = graph_.steps[i];
      if (is_gone_[i] || step.results.empty()) continue;
      const auto* const place = std::get_if<Place>(&step.results.front());
      if (place != nullptr && *place == input.place) return returns_own_memory(step);
    }
    return false;
  }

  bool may_pass(const Step& step, const Step& norm) const {
    for (const std::size_t statistic : {kRunningMean, kRunningVar}) {
      const Operand& operand = norm.operands[statistic];
      if (operand.kind == Operand::Kind::kValue && reads(step, operand.place)) return false;
    }
    if (!step.operation) return step.region == nullptr;
    const auto& arguments = step.operation->schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* const alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      const Operand& written = step.operands[i];
      const bool is_held =
          is_value(written) && static_cast<std::size_t>(written.place) < graph_.inputs;
      if (!is_held || reads(norm, written.place)) return false;
    }
    return true;
  }

  void join(const Block& block) {
    std::vector<Step>& steps = graph_.steps;
    Step joined = std::move(steps[block.norm]);
    joined.results = std::move(steps[block.last].results);
    joined.behind = known_activation(steps[block.last]);
    if (block.addition) {
      const bool is_in_place = calls(steps[*block.addition], "aten::add_", "Tensor");
      joined.behind = is_in_place ? BehindNorm::kAddInPlaceAndRelu : BehindNorm::kAddAndRelu;
      joined.operands.push_back(*block.addend);
      is_gone_[*block.addition] = true;
    }
    is_gone_[block.norm] = true;
    steps[block.last] = std::move(joined);
  }

  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as transformers writes it.
  bool is_end_of_gelu(std::size_t end) const {
    if (end < kGelu.size() - 1) return false;
    const std::size_t begin = end - (kGelu.size() - 1);
    if (graph_.steps[begin].operands.empty()) return false;
    const Operand& input = graph_.steps[begin].operands[0];
    for (std::size_t i = 0; i < kGelu.size(); ++i) {
      const Step& step = graph_.steps[begin + i];
      if (is_gone_[begin + i] || !calls(step, kGelu[i].name, kGelu[i].overload)) return false;
      const bool is_inner = begin + i != end;
      if (is_inner && !only_reader(begin + i)) return false;
      for (std::size_t operand = 0; operand < 2 && kGelu[i].operands[operand] != kAbsent; ++operand)
        if (!is_part_of_gelu(step.operands[operand], kGelu[i].operands[operand], begin, input))
          return false;
      if (calls(step, "aten::add", "Tensor") && !is_one(step.operands[2])) return false;
    }
    return true;
  }

  bool is_part_of_gelu(
      const Operand& operand, double wanted, std::size_t begin, const Operand& input) const {
    if (wanted == kInputOfGelu) return is_value(operand) && operand.place == input.place;
    if (wanted < 0)
      return is_value(operand) &&
             operand.place == result_of(begin + static_cast<std::size_t>(-wanted) - 1);
    return number_of(operand) == wanted;
  }

  void join_gelu(std::size_t end) {
    const std::size_t begin = end - (kGelu.size() - 1);
    Step joined = std::move(graph_.steps[end]);
    joined.operation = c10::Dispatcher::singleton().findSchemaOrThrow("aten::gelu", "");
    joined.operands = {graph_.steps[begin].operands[0], {.constant = c10::IValue("tanh")}};
    joined.own = joined_gelu_step;
    graph_.steps[end] = std::move(joined);
    for (std::size_t i = begin; i < end; ++i) is_gone_[i] = true;
  }

  GraphParts& graph_;
  std::vector<bool> is_gone_;
  std::vector<std::size_t> uses_;
};

// addmm(bias, input, weight)
bool addmm_as_linear(std::vector<c10::IValue>& stack) {
  const at::Tensor &bias = stack[0].toTensor(), &input = stack[1].toTensor();
  const auto weight = stack[2].toTensor().t();
  if (input.dim() != 2 || !stack[3].toScalar().equal(1) || !stack[4].toScalar().equal(1) ||
      !linear::is_linear_for_own({.input = input, .weight = weight, .bias = bias}))
    return false;
  auto result = at::linear(input, weight, bias);
  stack.assign({std::move(result)});
  return true;
}

template <fused::GeluForm kForm>
bool own_gelu_step(std::vector<c10::IValue>& stack) {
  auto result = fused::gelu(stack.front().toTensor(), kForm);
  stack.assign({std::move(result)});
  return true;
}

// gelu(input, approximate)
OwnKernel own_gelu_of(const Operand& approximate) {
  if (!approximate.constant.isString()) return nullptr;
  const auto& name = approximate.constant.toStringRef();
  if (name == "tanh") return own_gelu_step<fused::GeluForm::kTanh>;
  return name == "none" ? own_gelu_step<fused::GeluForm::kExact> : nullptr;
}

void find_own_kernels(std::vector<Step>& steps) {
  for (Step& step : steps) {
    if (calls(step, "aten::addmm")) step.own = addmm_as_linear;
    if (calls(step, "aten::gelu") && step.own == nullptr) step.own = own_gelu_of(step.operands[1]);
  }
}

}  // namespace

void fuse(GraphParts& graph) {
  Fusion(graph).run();
  fuse_squeeze_excite(graph);
  fuse_language_steps(graph);
  fuse_embedded_lstms(graph);
  fuse_joined_maps(graph);
  find_own_kernels(graph.steps);
}

}  // namespace lockstep::nn::exported
