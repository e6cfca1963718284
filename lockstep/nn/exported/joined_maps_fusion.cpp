#include "lockstep/nn/exported/joined_maps_fusion.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/record_function.h>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/shared_memory.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::exported {
namespace {

using at::Tensor;
using c10::IValue;

/// The arguments of the step; behind them those of each part.
struct JoinedMapsArguments {
  enum : std::size_t { kWeight, kBias, kParts, kCount };
};
struct PartArguments {
  enum : std::size_t { kMaps, kIsEnlarged, kSize, kAlignsCorners, kScales, kCount };
};

/// A part of the joined maps.
struct MapsPart {
  const IValue* arguments;

  const Tensor& maps() const { return arguments[PartArguments::kMaps].toTensor(); }
  std::int64_t channels() const { return maps().size(1); }
  bool is_enlarged() const { return arguments[PartArguments::kIsEnlarged].toBool(); }

  // What is enlarged must not become wider.
  bool can_take(const Tensor& weight) const {
    return is_readable(maps()) && maps().scalar_type() == at::kFloat && maps().dim() == 4 &&
           (!is_enlarged() || weight.size(0) <= channels());
  }

  Tensor convolved(const Tensor& taps, const std::optional<Tensor>& bias) const {
    const auto result =
        at::conv2d(maps(), taps, bias, at::IntArrayRef{1, 1}, at::IntArrayRef{0, 0});
    return is_enlarged() ? enlarged(result) : result;
  }

 private:
  Tensor enlarged(const Tensor& small) const {
    const IValue &size = arguments[PartArguments::kSize],
                 &scales = arguments[PartArguments::kScales];
    const auto sizes = size.isNone() ? std::vector<std::int64_t>() : size.toIntVector();
    const auto factors = scales.isNone() ? std::vector<double>() : scales.toDoubleVector();
    return at::upsample_bilinear2d(small,
        size.isNone() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(at::IntArrayRef(sizes)),
        arguments[PartArguments::kAlignsCorners].toBool(),
        scales.isNone() ? std::nullopt : std::optional<at::ArrayRef<double>>(factors));
  }
};

std::vector<MapsPart> parts_of_maps(const std::vector<IValue>& stack) {
  std::vector<MapsPart> parts;
  const auto count = static_cast<std::size_t>(stack[JoinedMapsArguments::kParts].toInt());
  for (std::size_t i = 0; i < count; ++i)
    parts.push_back({stack.data() + JoinedMapsArguments::kCount + i * PartArguments::kCount});
  return parts;
}

bool are_for_own(const std::vector<MapsPart>& parts, const Tensor& weight) {
  if (kernels_in_use() == Kernels::kLibTorch || at::autocast::is_autocast_enabled(at::kCPU) ||
      !is_readable(weight) || weight.scalar_type() != at::kFloat || weight.dim() != 4 ||
      weight.size(2) != 1 || weight.size(3) != 1)
    return false;
  std::int64_t channels = 0;
  for (const MapsPart& part : parts) {
    if (!part.can_take(weight)) return false;
    channels += part.channels();
  }
  return channels == weight.size(1);
}

bool own_joined_maps_step(std::vector<IValue>& stack) {
  const Tensor& weight = stack[JoinedMapsArguments::kWeight].toTensor();
  const auto parts = parts_of_maps(stack);
  if (!are_for_own(parts, weight)) return false;
  RECORD_FUNCTION("lockstep::joined_maps", c10::ArrayRef<const IValue>({weight}));
  auto bias = stack[JoinedMapsArguments::kBias].toOptional<Tensor>();
  Tensor sum;
  std::int64_t channel = 0;
  for (const MapsPart& part : parts) {
    const auto taps = weight.narrow(1, channel, part.channels());
    const auto maps = part.convolved(taps, std::exchange(bias, std::nullopt));
    if (sum.defined() && sum.sizes() != maps.sizes()) return false;  // LibTorch says what is wrong
    sum = sum.defined() ? sum + maps : maps;
    channel += part.channels();
  }
  stack.assign({std::move(sum)});
  return true;
}

bool is_number_or_list_of(const Operand& operand, std::int64_t wanted) {
  if (operand.kind != Operand::Kind::kConstant) return false;
  if (operand.constant.isInt()) return operand.constant.toInt() == wanted;
  if (!operand.constant.isIntList()) return false;
  const auto items = operand.constant.toIntVector();
  return std::ranges::all_of(items, [=](std::int64_t item) { return item == wanted; });
}

class JoinedMapsFusion {
 public:
  explicit JoinedMapsFusion(GraphParts& graph)
      : graph_(graph), memory_(graph), uses_(uses_of(graph)), maker_(graph.values) {
    for (std::size_t i = 0; i < graph.steps.size(); ++i) {
      const auto& results = graph.steps[i].results;
      const auto* const place = results.size() == 1 ? std::get_if<Place>(&results[0]) : nullptr;
      if (place != nullptr && *place != kNowhere) maker_[index(*place)] = i;
    }
  }

  void run() {
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) join_at(i);
    std::vector<Step> left;
    for (std::size_t i = 0; i < graph_.steps.size(); ++i)
      if (!gone_.contains(i)) left.push_back(std::move(graph_.steps[i]));
    graph_.steps = std::move(left);
  }

 private:
  static std::size_t index(Place place) { return static_cast<std::size_t>(place); }

  const Step& step(std::size_t number) const { return graph_.steps[number]; }

  // Of one pixel, it seems; the kernel's size is seen when it runs.
  static bool may_be_pointwise(const Step& step) {
    return calls(step, "aten::conv2d") && is_value(step.operands[0]) &&
           is_value(step.operands[1]) && is_number_or_list_of(step.operands[3], 1) &&
           is_number_or_list_of(step.operands[4], 0) && is_number_or_list_of(step.operands[6], 1);
  }

  static bool is_join_of_channels(const Step& step) {
    const auto& operands = step.operands;
    return calls(step, "aten::cat") && operands[0].kind == Operand::Kind::kList &&
           std::ranges::all_of(operands[0].items, is_value) && is_number_or_list_of(operands[1], 1);
  }

  // A step that alone makes what alone another one reads.
  std::optional<std::size_t> own_maker(const Operand& operand) const {
    return uses_[index(operand.place)] == 1 ? maker_[index(operand.place)] : std::nullopt;
  }

  bool stays(const Operand& operand, std::size_t from) const {
    return !memory_.is_written(operand.place, from);
  }

  std::optional<std::size_t> enlarging(const Operand& part) const {
    const auto maker = own_maker(part);
    const bool is_known = maker && calls(step(*maker), "aten::upsample_bilinear2d", "vec") &&
                          is_value(step(*maker).operands[0]) &&
                          stays(step(*maker).operands[0], *maker);
    return is_known ? maker : std::nullopt;
  }

  void join_at(std::size_t last) {
    if (!may_be_pointwise(step(last))) return;
    const auto join = own_maker(step(last).operands[0]);
    if (!join || !is_join_of_channels(step(*join))) return;
    const auto& parts = step(*join).operands[0].items;
    std::set<std::size_t> nodes{*join, last};
    for (const Operand& part : parts) {
      const auto enlarged = enlarging(part);
      if (enlarged) nodes.insert(*enlarged);
      if (!enlarged && !stays(part, *join)) return;
    }
    constexpr std::size_t kOfNone = 2;  // nothing is enlarged
    if (nodes.size() > kOfNone) join_nodes(nodes, parts);
  }

  void join_nodes(const std::set<std::size_t>& nodes, const std::vector<Operand>& parts) {
    const std::size_t last = *nodes.rbegin();
    Step joined{.own = own_joined_maps_step,
        .operands = {step(last).operands[1], step(last).operands[2],
            {.constant = static_cast<std::int64_t>(parts.size())}},
        .results = step(last).results,
        .text = step(last).text,
        .modules = step(last).modules};
    for (const Operand& part : parts) add_part(joined, part);
    std::set<Place> taken;  // by the nodes
    for (const Operand& operand : joined.operands)
      visit_values(operand, [&](Place place) { taken.insert(place); });
    for (const Place place : taken)
      joined.operands.push_back({.kind = Operand::Kind::kValue, .place = place});
    for (const std::size_t node : nodes) {
      joined.nodes.push_back(std::move(graph_.steps[node]));
      gone_.insert(node);
    }
    gone_.erase(last);
    graph_.steps[last] = std::move(joined);
  }

  void add_part(Step& joined, const Operand& part) const {
    const auto enlarged = enlarging(part);
    if (!enlarged) {
      const Operand none{};
      joined.operands.insert(joined.operands.end(), {part, {.constant = false}, none, none, none});
      return;
    }
    const auto& of = step(*enlarged).operands;
    joined.operands.insert(joined.operands.end(), {of[0], {.constant = true}, of[1], of[2], of[3]});
  }

  GraphParts& graph_;
  SharedMemory memory_;
  std::vector<std::size_t> uses_;
  std::vector<std::optional<std::size_t>> maker_;
  std::set<std::size_t> gone_;
};

}  // namespace

void fuse_joined_maps(GraphParts& graph) { JoinedMapsFusion(graph).run(); }

}  // namespace lockstep::nn::exported
