#include "lockstep/nn/exported/shared_memory.h"

#include <numeric>
#include <optional>
#include <variant>

namespace lockstep::nn::exported {
namespace {

void add_values(const Operand& operand, std::vector<Place>& values) {
  if (operand.kind == Operand::Kind::kValue) values.push_back(operand.place);
  for (const Operand& item : operand.items) add_values(item, values);
}

void add_values(const std::variant<Place, std::vector<Place>>& result, std::vector<Place>& values) {
  if (const auto* place = std::get_if<Place>(&result)) {
    if (*place != kNowhere) values.push_back(*place);
    return;
  }
  for (const Place place : std::get<std::vector<Place>>(result)) add_values(place, values);
}

// Those among which a schema names a memory; of a region all, as it may hand on what it takes.
std::vector<Place> sharing_values(const Step& step) {
  std::vector<Place> values;
  const auto* const schema = step.operation ? &step.operation->schema() : nullptr;
  if (schema == nullptr && step.region == nullptr) return values;
  for (std::size_t i = 0; i < step.operands.size(); ++i)
    if (schema == nullptr || schema->arguments()[i].alias_info() != nullptr)
      add_values(step.operands[i], values);
  for (std::size_t i = 0; i < step.results.size(); ++i)
    if (schema == nullptr || schema->returns()[i].alias_info() != nullptr)
      add_values(step.results[i], values);
  return values;
}

bool writes(const Step& step, std::size_t operand) {
  if (step.region != nullptr) return step.region->changes(operand);
  if (!step.operation) return false;
  const auto* const alias = step.operation->schema().arguments()[operand].alias_info();
  return alias != nullptr && alias->isWrite();
}

}  // namespace

SharedMemory::SharedMemory(const GraphParts& graph) : of_(graph.values), behind_(graph.values) {
  std::iota(of_.begin(), of_.end(), std::size_t{0});
  for (const Step& step : graph.steps) join(step);
  for (std::size_t i = 0; i < graph.steps.size(); ++i) note_writes(graph.steps[i], i + 1);
}

void SharedMemory::join(const Step& step) {
  std::optional<std::size_t> group;
  for (const Place value : sharing_values(step)) {
    const std::size_t own = group_of(value);
    if (!group) group = own;
    of_[own] = *group;
  }
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
