#include "lockstep/nn/exported/shared_memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <variant>

#include "lockstep/nn/exported/step_queries.h"

namespace lockstep::nn::exported {
namespace {

void add_values(const Operand& operand, std::vector<Place>& values) {
  visit_values(operand, [&](Place place) { values.push_back(place); });
}

void add_values(const std::variant<Place, std::vector<Place>>& result, std::vector<Place>& values) {
  if (const auto* place = std::get_if<Place>(&result)) {
    if (*place != kNowhere) values.push_back(*place);
    return;
  }
  for (const Place place : std::get<std::vector<Place>>(result)) add_values(place, values);
}

using Places = std::vector<Place>;

// Those among which a schema names a memory.
Places sharing_values(const Step& step, const c10::FunctionSchema& schema) {
  Places values;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].alias_info() != nullptr) add_values(step.operands[i], values);
  for (std::size_t i = 0; i < step.results.size(); ++i)
    if (schema.returns()[i].alias_info() != nullptr) add_values(step.results[i], values);
  return values;
}

// As a graph within the graph has them.
std::map<std::size_t, Places> sharing_values(const Step& step, const ExecutableGraph& graph) {
  std::map<std::size_t, Places> groups;
  const auto& of_inputs = graph.memory_of_inputs();
  const auto& of_outputs = graph.memory_of_outputs();
  const std::size_t others = step.operands.size() - of_inputs.size();  // a condition
  for (std::size_t i = 0; i < of_inputs.size(); ++i)
    add_values(step.operands[others + i], groups[of_inputs[i]]);
  for (std::size_t i = 0; i < std::min(of_outputs.size(), step.results.size()); ++i)
    add_values(step.results[i], groups[of_outputs[i]]);
  return groups;
}

bool writes(const Step& step, std::size_t operand) {
  if (step.region != nullptr) return step.region->changes(operand);
  // Behind the operator's own there may be an addend of fused steps, which are not in place.
  if (!step.operation || operand >= step.operation->schema().arguments().size()) return false;
  const auto* const alias = step.operation->schema().arguments()[operand].alias_info();
  return alias != nullptr && alias->isWrite();
}

}  // namespace

SharedMemory::SharedMemory(const GraphParts& graph) : of_(graph.values), behind_(graph.values) {
  std::iota(of_.begin(), of_.end(), std::size_t{0});
  for (const Step& step : graph.steps) {
    if (step.operation) join(sharing_values(step, step.operation->schema()));
    if (step.region == nullptr) continue;
    for (const ExecutableGraph& inner : step.region->graphs)
      for (const auto& [group, values] : sharing_values(step, inner)) join(values);
  }
  for (std::size_t i = 0; i < graph.steps.size(); ++i) note_writes(graph.steps[i], i + 1);
}

void SharedMemory::join(const std::vector<Place>& values) {
  for (const Place value : values) of_[group_of(value)] = group_of(values.front());
}

void SharedMemory::note_writes(const Step& step, std::size_t behind) {
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    if (!writes(step, i)) continue;
    std::vector<Place> values;
    add_values(step.operands[i], values);
    for (const Place value : values) behind_[group_of(value)] = behind;
  }
}

std::size_t SharedMemory::group_of(Place value) const {
  auto group = static_cast<std::size_t>(value);
  while (of_[group] != group) group = of_[group];
  return group;
}

bool SharedMemory::is_written(Place value, std::size_t first) const {
  return behind_[group_of(value)] > first;
}

}  // namespace lockstep::nn::exported
