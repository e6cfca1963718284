#include "lockstep/nn/exported/executable_graph.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/exported/boxing.h"
#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/fused/batch_norm_relu.h"

namespace lockstep::nn::exported {
namespace {

using c10::IValue;
using Frame = std::vector<IValue>;

// Python makes a tensor of a number where an operator takes a tensor.
IValue converted(IValue value, Operand::Conversion conversion) {
  if (conversion == Operand::Conversion::kNone || value.isTensor()) return value;
  const at::Scalar number = value.toScalar();
  return conversion == Operand::Conversion::kTensor ? IValue(wrapped_number(number))
                                                    : IValue(number.toDouble());
}

IValue value_of(const Operand& operand, Frame& frame, const RunContext& context) {
  const auto index = static_cast<std::size_t>(operand.place);
  switch (operand.kind) {
    case Operand::Kind::kConstant:
      return operand.constant;
    case Operand::Kind::kValue:
      return converted(frame[index], operand.conversion);
    case Operand::Kind::kLastUse:
      return converted(std::move(frame[index]), operand.conversion);
    case Operand::Kind::kDevice:
      return context.device;
    case Operand::Kind::kByMode:
      return context.modules[index]->is_training() ? operand.in_training : operand.constant;
    case Operand::Kind::kList:
      break;
  }
  std::vector<IValue> items;
  for (const Operand& item : operand.items) items.push_back(value_of(item, frame, context));
  return boxed_list(*operand.element, items);
}

// As torch.nn.functional.batch_norm does: of one value there is no variance.
void check_batch_norm(const std::vector<IValue>& arguments) {
  constexpr std::size_t kInTraining = 5;
  const at::Tensor& input = arguments.front().toTensor();
  const bool is_of_one = input.dim() > 1 && input.numel() > 0 && input.numel() == input.size(1);
  check(!is_of_one || !arguments.at(kInTraining).toBool(),
      "a batch norm needs more than one value per channel in training, and its input is ",
      input.sizes());
}

bool adds(BehindNorm behind) {
  return behind == BehindNorm::kAddAndRelu || behind == BehindNorm::kAddInPlaceAndRelu;
}

void call_norm_and_rest(const Step& step, std::vector<IValue>& stack) {
  fused::AfterBatchNorm after{.activation = activation_of(step.behind)};
  if (adds(step.behind)) {
    after.addend = std::move(stack.back()).toTensor();
    stack.pop_back();
  }
  const auto norm = [&] {
    step.operation->callBoxed(stack);
    return stack.front().toTensor();
  };
  auto [maps, is_activated] = fused::batch_norm_before(after, norm);
  if (!is_activated) {
    if (step.behind == BehindNorm::kAddAndRelu) maps = maps + after.addend;
    if (step.behind == BehindNorm::kAddInPlaceAndRelu) maps.add_(after.addend);
    maps = fused::activate(std::move(maps), after.activation);
  }
  stack.front() = std::move(maps);
}

void take_operands(
    const Step& step, Frame& frame, std::vector<IValue>& stack, const RunContext& context) {
  for (const Operand& operand : step.operands) stack.push_back(value_of(operand, frame, context));
}

// Leaves the results on the stack.
void call(const Step& step, Frame& frame, std::vector<IValue>& stack, const RunContext& context) {
  stack.clear();
  const auto mode = step.only_in_training_of;
  if (mode && !context.modules[*mode]->is_training()) {
    stack.push_back(value_of(step.operands.front(), frame, context));
    return;
  }
  take_operands(step, frame, stack, context);
  if (step.is_batch_norm) check_batch_norm(stack);
  if (step.behind != BehindNorm::kNothing) {
    call_norm_and_rest(step, stack);
  } else if (step.operation) {
    if (step.own == nullptr || !step.own(stack)) step.operation->callBoxed(stack);
  } else if (step.function != nullptr) {
    IValue number = step.function(stack);
    stack.clear();
    stack.push_back(std::move(number));
  } else {
    stack = step.region->run(stack, context);
    TORCH_CHECK(stack.size() == step.results.size(), "its graph returns ", stack.size(),
        " values, not ", step.results.size());
  }
}

void keep(const std::vector<Place>& places, const c10::List<IValue>& items, Frame& frame) {
  TORCH_CHECK(items.size() == places.size(), "it returns a list of ", items.size(),
      " tensors, but the program was exported with ", places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] != kNowhere) frame[static_cast<std::size_t>(places[i])] = items.get(i);
  }
}

void keep_results(const Step& step, std::vector<IValue>& stack, Frame& frame) {
  for (std::size_t i = 0; i < step.results.size(); ++i) {
    const auto* const place = std::get_if<Place>(&step.results[i]);
    if (place == nullptr) {
      keep(std::get<std::vector<Place>>(step.results[i]), stack[i].toList(), frame);
    } else if (*place != kNowhere) {
      frame[static_cast<std::size_t>(*place)] = std::move(stack[i]);
    }
  }
}

// For the nodes, which take it by its place.
void put_back(const Step& step, std::vector<IValue>& stack, Frame& frame) {
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const Operand& operand = step.operands[i];
    if (operand.kind == Operand::Kind::kLastUse)
      frame[static_cast<std::size_t>(operand.place)] = std::move(stack[i]);
  }
}

/// The steps of one run, one after the other.
class StepRunner {
 public:
  StepRunner(Frame& frame, const RunContext& context) : frame_(frame), context_(context) {}

  void operator()(const Step& step) {
    current_ = &step;
    if (step.nodes.empty()) {
      call(step, frame_, stack_, context_);
    } else if (!compute_at_once(step)) {
      for (const Step& node : step.nodes) (*this)(node);
      return;  // the last one has the result
    }
    keep_results(step, stack_, frame_);
  }

  const std::string& text() const { return current_->text; }

 private:
  bool compute_at_once(const Step& step) {
    stack_.clear();
    take_operands(step, frame_, stack_, context_);
    if (step.own(stack_)) return true;
    put_back(step, stack_, frame_);
    return false;
  }

  Frame& frame_;
  const RunContext& context_;
  std::vector<IValue> stack_;
  const Step* current_ = nullptr;
};

}  // namespace

ExecutableGraph::ExecutableGraph(
    const ExportedGraph& graph, const GraphSettings& settings, GraphNeeds& needs)
    : parts_(std::make_unique<const GraphParts>(parts_of(graph, settings, needs))) {}

ExecutableGraph::~ExecutableGraph() = default;
ExecutableGraph::ExecutableGraph(ExecutableGraph&&) noexcept = default;

std::size_t ExecutableGraph::inputs() const { return parts_->inputs; }

bool ExecutableGraph::changes(std::size_t input) const { return parts_->changed[input]; }

const std::vector<std::size_t>& ExecutableGraph::memory_of_inputs() const {
  return parts_->memory_of_inputs;
}

const std::vector<std::size_t>& ExecutableGraph::memory_of_outputs() const {
  return parts_->memory_of_outputs;
}

std::vector<IValue> ExecutableGraph::frame() const { return Frame(parts_->values); }

void ExecutableGraph::run_steps(
    Frame& frame, std::size_t begin, std::size_t end, const RunContext& context) const {
  StepRunner run(frame, context);
  try {
    for (std::size_t i = begin; i < end; ++i) run(parts_->steps[i]);
  } catch (c10::Error& error) {
    error.add_context(concat("in ", run.text()));
    throw;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(error.what(), "\n  in ", run.text()));
  }
}

std::vector<IValue> ExecutableGraph::run(Frame frame, const RunContext& context) const {
  run_steps(frame, 0, parts_->steps.size(), context);
  std::vector<IValue> outputs;
  for (const Operand& output : parts_->outputs) outputs.push_back(value_of(output, frame, context));
  return outputs;
}

bool Region::changes(std::size_t argument) const {
  const std::size_t own = kind == Kind::kCondition ? 1 : 0;
  return argument >= own && std::ranges::any_of(graphs, [&](const ExecutableGraph& graph) {
    return graph.changes(argument - own);
  });
}

std::vector<IValue> Region::run(std::span<IValue> arguments, const RunContext& context) const {
  std::size_t branch = 0;
  if (kind == Kind::kCondition) {
    const IValue& condition = arguments.front();
    const bool holds =
        condition.isTensor() ? condition.toTensor().item().toBool() : condition.toScalar().toBool();
    branch = holds ? 0 : 1;
    arguments = arguments.subspan(1);
  }
  Frame frame = graphs[branch].frame();
  std::ranges::move(arguments, frame.begin());
  std::optional<c10::AutoGradMode> grad_mode;
  std::optional<Autocast> autocast;
  if (kind == Kind::kGradMode) grad_mode.emplace(enabled);
  if (kind == Kind::kAutocast) {
    const auto device = context.device.type();
    autocast.emplace(device, type.value_or(at::autocast::get_autocast_dtype(device)), enabled);
  }
  return graphs[branch].run(std::move(frame), context);
}

}  // namespace lockstep::nn::exported
