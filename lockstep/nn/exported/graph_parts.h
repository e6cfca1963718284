#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "lockstep/nn/exported/executable_graph.h"
#include "lockstep/nn/exported/size_arithmetic.h"

namespace lockstep::nn::exported {

/// The place of a value in the frame of a run.
using Place = std::int32_t;
inline constexpr Place kNowhere = -1;

/// Where an argument of a step comes from.
struct Operand {
  enum class Kind : std::uint8_t {
    kConstant,
    kValue,
    kLastUse,  ///< a value that nothing reads any more
    kDevice,   ///< of the run
    kByMode,   ///< `constant` in evaluation, `in_training` in training
    kList      ///< of items that are not all constants
  };
  enum class Conversion : std::uint8_t { kNone, kTensor, kDouble };

  Kind kind = Kind::kConstant;
  Conversion conversion = Conversion::kNone;  ///< of a number, where the schema wants another type
  Place place = kNowhere;                     ///< of a value; the index of a module for a mode
  c10::IValue constant = {}, in_training = {};
  std::vector<Operand> items = {};
  c10::TypePtr element = nullptr;  ///< type of a list's items
};

/// A higher-order operator: graphs within a graph, and what is set while they run.
struct Region {
  enum class Kind : std::uint8_t { kPlain, kGradMode, kAutocast, kCondition };
  Kind kind = Kind::kPlain;
  bool enabled = true;
  std::optional<at::ScalarType> type = {};
  std::vector<ExecutableGraph> graphs = {};  ///< of a condition those for true and false

  std::vector<c10::IValue> run(std::span<c10::IValue> arguments, const RunContext& context) const;

  /// Returns whether a graph writes into an argument.
  bool changes(std::size_t argument) const;
};

/// The operators behind a batch norm that its step computes, too (fusion.h).
enum class BehindNorm : std::uint8_t {
  kNothing,
  kRelu,
  kAddAndRelu,
  kAddInPlaceAndRelu,
  kSilu,
  kHardswish
};

/// Computes an operator, or fused ones, by our kernels, if they can: takes the arguments from the
/// stack, and leaves the result there. Returns whether it has; if not, the stack is as it was.
using OwnKernel = bool (*)(std::vector<c10::IValue>& stack);

/// One call: of an operator, of a function of numbers, or of a region; or several calls that our
/// kernels compute at once.
struct Step {
  std::optional<c10::OperatorHandle> operation = {};
  OwnKernel own = nullptr;  ///< asked before the operator, or the nodes, or none
  /// The steps that were fused. All values that they take from others are the last operands.
  std::vector<Step> nodes = {};
  NumberFunction function = nullptr;
  std::unique_ptr<Region> region = nullptr;
  std::vector<Operand> operands = {};
  /// For each result one place, or one for each of its items if it is a list.
  std::vector<std::variant<Place, std::vector<Place>>> results = {};
  /// A module; in its evaluation the first operand is handed on instead.
  std::optional<std::size_t> only_in_training_of = {};
  bool is_batch_norm = false;                ///< Python refuses it a single value in training
  BehindNorm behind = BehindNorm::kNothing;  ///< an addend is then the last operand
  std::string text = {};                     ///< node, operator and line of Python
  std::vector<std::string> modules = {};     ///< paths of those it was called in, the model's first
};

/// A graph, ready to run. Its inputs have the first places.
struct GraphParts {
  std::size_t inputs = 0, values = 0;
  /// The sizes of the values in memory, sizes that vary taken as 1; 0 for numbers.
  std::vector<double> bytes = {};
  std::vector<bool> is_number = {};  ///< for each value: it is no tensor
  std::vector<Step> steps = {};
  std::vector<Operand> outputs = {};
  std::vector<bool> changed = {};  ///< for each input whether it is written in place
  /// Of inputs and outputs, a number that those have in common that may share memory.
  std::vector<std::size_t> memory_of_inputs = {}, memory_of_outputs = {};
};

/// Resolves a graph's operators and boxes its constants; see ExecutableGraph.
GraphParts parts_of(const ExportedGraph& graph, const GraphSettings& settings, GraphNeeds& needs);

}  // namespace lockstep::nn::exported
