#include "lockstep/nn/exported/training_flag.h"

#include <algorithm>
#include <string_view>
#include <variant>

namespace lockstep::nn::exported {
namespace {

// LibTorch's schemas have these names for nothing else.
bool is_switch(std::string_view name) {
  return name == "train" || name == "training" || name == "use_input_stats";
}
constexpr std::string_view kProbability = "dropout_p";

// Such a norm takes the batch's in evaluation, too.
bool lacks_statistics(const ExportedNode& node) {
  const auto is_none = [](const ExportedInput& input) {
    return input.name == "running_mean" &&
           std::holds_alternative<std::monostate>(input.argument.content);
  };
  return node.target.ends_with(".no_stats") || std::ranges::any_of(node.inputs, is_none);
}

bool is_on(const ExportedInput& input) {
  if (const auto* truth = std::get_if<bool>(&input.argument.content))
    return *truth && is_switch(input.name);
  const auto* probability = std::get_if<double>(&input.argument.content);
  return probability != nullptr && *probability > 0 && input.name == kProbability;
}

bool is_on_in(const ExportedNode& node) {
  for (const ExportedInput& input : node.inputs) {
    if (is_on(input) && !lacks_statistics(node)) return true;
    const auto* subgraph = std::get_if<ExportedSubgraph>(&input.argument.content);
    if (subgraph != nullptr && is_exported_in_training(*subgraph->graph)) return true;
  }
  return false;
}

}  // namespace

std::optional<std::size_t> training_argument(
    const c10::FunctionSchema& schema, const ExportedNode& node) {
  if (lacks_statistics(node)) return std::nullopt;
  const auto& arguments = schema.arguments();
  const auto found = std::ranges::find_if(arguments, [](const c10::Argument& argument) {
    return is_switch(argument.name()) || argument.name() == kProbability;
  });
  if (found == arguments.end()) return std::nullopt;
  return static_cast<std::size_t>(found - arguments.begin());
}

bool is_exported_in_training(const ExportedGraph& graph) {
  return std::ranges::any_of(graph.nodes, is_on_in);
}

}  // namespace lockstep::nn::exported
