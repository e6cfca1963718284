#include "lockstep/nn/exported/language_fusion.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/language_kernels.h"
#include "lockstep/nn/exported/shared_memory.h"
#include "lockstep/nn/exported/step_queries.h"

namespace lockstep::nn::exported {
namespace {

constexpr std::array<std::array<std::size_t, 2>, 2> kOrders{{{0, 1}, {1, 0}}};  // of two operands

/// Steps that a kernel computes at once.
struct Pattern {
  std::set<std::size_t> steps;    ///< numbers; the last one has the result
  std::vector<Operand> operands;  ///< of the kernel
  OwnKernel own = nullptr;
};

bool is_constant(const Operand& operand, const c10::IValue& wanted) {
  return operand.kind == Operand::Kind::kConstant && operand.constant == wanted;
}

bool is_none(const Operand& operand) {
  return operand.kind == Operand::Kind::kConstant && operand.constant.isNone();
}

std::optional<std::int64_t> whole_number_of(const Operand& operand) {
  const bool is_whole = operand.kind == Operand::Kind::kConstant && operand.constant.isInt();
  return is_whole ? std::optional(operand.constant.toInt()) : std::nullopt;
}

bool has_alpha_one(const Step& addition) { return number_of(addition.operands[2]) == 1; }

// Of tensors [N, heads, T, size] and [..., T, size].
bool is_last(const Operand& dimension) {
  const auto number = whole_number_of(dimension);
  return number == -1 || number == 3;
}

Operand plain_value(Place place) { return {.kind = Operand::Kind::kValue, .place = place}; }

class LanguageFusion {
 public:
  explicit LanguageFusion(GraphParts& graph)
      : graph_(graph),
        memory_(graph),
        maker_(graph.values),
        readers_(graph.values),
        is_gone_(graph.steps.size()),
        before_(graph.steps.size()) {
    for (std::size_t i = 0; i < graph.steps.size(); ++i) note(i);
    for (const Operand& output : graph.outputs)
      visit_values(output, [&](Place place) { readers_[index(place)].push_back(kOutput); });
  }

  void run() {
    constexpr std::optional<Pattern> (LanguageFusion::*kFind[])(std::size_t last)
        const = {&LanguageFusion::rms_norm, &LanguageFusion::swiglu, &LanguageFusion::rotary,
            &LanguageFusion::packed_attention, &LanguageFusion::attention,
            &LanguageFusion::layer_scale};
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      for (const auto find : kFind) {
        if (is_gone_[i] || !graph_.steps[i].nodes.empty()) break;
        auto pattern = (this->*find)(i);
        if (pattern && may_join(*pattern)) join(*pattern);
      }
    }
    std::vector<Step> left;
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      for (Step& step : before_[i]) left.push_back(std::move(step));
      if (!is_gone_[i]) left.push_back(std::move(graph_.steps[i]));
    }
    graph_.steps = std::move(left);
  }

 private:
  static constexpr std::size_t kOutput = std::numeric_limits<std::size_t>::max();

  static std::size_t index(Place place) { return static_cast<std::size_t>(place); }

  static bool is_assertion(const Step& step) {
    return calls(step, "aten::_assert_tensor_metadata");
  }

  static std::optional<Place> result_of(const Step& step) {
    const auto* const place =
        step.results.size() == 1 ? std::get_if<Place>(&step.results.front()) : nullptr;
    return place == nullptr || *place == kNowhere ? std::nullopt : std::optional(*place);
  }

  void note(std::size_t number) {
    const Step& step = graph_.steps[number];
    for (const Operand& operand : step.operands)
      visit_values(operand, [&](Place place) { readers_[index(place)].push_back(number); });
    visit_results(step, [&](Place place) { maker_[index(place)] = number; });
  }

  const Step& step(std::size_t number) const { return graph_.steps[number]; }

  /// Finds the step of an operator that alone makes an operand, and adds it to a pattern.
  const Step* made_by(const Operand& operand, std::string_view name, std::string_view overload,
      Pattern& pattern) const {
    const auto maker = is_value(operand) ? maker_[index(operand.place)] : std::nullopt;
    if (!maker || is_gone_[*maker] || !calls(step(*maker), name, overload)) return nullptr;
    pattern.steps.insert(*maker);
    return &step(*maker);
  }

  /// Returns what an operand is before it was made a float32, or the operand itself.
  const Operand& uncast(const Operand& operand, Pattern& pattern) const {
    Pattern found;
    const Step* const cast = made_by(operand, "aten::to", "dtype", found);
    const bool is_plain = cast != nullptr && is_constant(cast->operands[1], at::kFloat) &&
                          is_constant(cast->operands[3], false) && is_none(cast->operands[4]);
    if (!is_plain) return operand;
    pattern.steps.merge(found.steps);
    return cast->operands[0];
  }

  // weight * (x * rsqrt(mean(x^2) + epsilon)), between which there may be casts.
  std::optional<Pattern> rms_norm(std::size_t last) const {
    if (!calls(step(last), "aten::mul", "Tensor")) return std::nullopt;
    for (const auto& [normed, weight] : kOrders) {
      for (const auto& [input, factor] : kOrders) {
        Pattern pattern{.steps = {last}, .operands = {}, .own = own_rms_norm_step};
        const auto& operands = step(last).operands;
        const Step* const product =
            made_by(uncast(operands[normed], pattern), "aten::mul", "Tensor", pattern);
        if (product == nullptr || !is_value(operands[weight])) continue;
        const auto epsilon =
            epsilon_of_norm(product->operands[factor], product->operands[input], pattern);
        if (!epsilon) continue;
        pattern.operands = {product->operands[input], operands[weight], {.constant = *epsilon}};
        return pattern;
      }
    }
    return std::nullopt;
  }

  std::optional<double> epsilon_of_norm(
      const Operand& factor, const Operand& input, Pattern& pattern) const {
    const Step* const root = made_by(factor, "aten::rsqrt", "", pattern);
    const Step* const sum =
        root == nullptr ? nullptr : made_by(root->operands[0], "aten::add", "Tensor", pattern);
    const Step* const mean =
        sum == nullptr ? nullptr : made_by(sum->operands[0], "aten::mean", "dim", pattern);
    const Step* const square =
        mean == nullptr ? nullptr
                        : made_by(mean->operands[0], "aten::pow", "Tensor_Scalar", pattern);
    if (square == nullptr || !has_alpha_one(*sum) || !is_mean_of_last(*mean) ||
        number_of(square->operands[1]) != 2)
      return std::nullopt;
    const Operand& squared = square->operands[0];
    const bool is_same = is_same_value(squared, input) ||
                         is_same_value(uncast(squared, pattern), input);  // as T5 writes it
    return is_same ? number_of(sum->operands[1]) : std::nullopt;
  }

  static bool is_same_value(const Operand& one, const Operand& other) {
    return is_value(one) && is_value(other) && one.place == other.place;
  }

  static bool is_mean_of_last(const Step& mean) {
    return is_constant(mean.operands[1], std::vector<std::int64_t>{-1}) &&
           is_constant(mean.operands[2], true) && is_none(mean.operands[3]);
  }

  // silu(gates) * values
  std::optional<Pattern> swiglu(std::size_t last) const {
    if (!calls(step(last), "aten::mul", "Tensor")) return std::nullopt;
    const auto& operands = step(last).operands;
    for (const auto& [gate, value] : kOrders) {
      Pattern pattern{.steps = {last}, .operands = {}, .own = own_swiglu_step};
      const Step* const silu = made_by(operands[gate], "aten::silu", "", pattern);
      if (silu == nullptr || !is_value(silu->operands[0]) || !is_value(operands[value])) continue;
      pattern.operands = {silu->operands[0], operands[value]};
      return pattern;
    }
    return std::nullopt;
  }

  // heads * cosines + cat([-second half, first half]) * sines
  std::optional<Pattern> rotary(std::size_t last) const {
    if (!calls(step(last), "aten::add", "Tensor") || !has_alpha_one(step(last)))
      return std::nullopt;
    for (const auto& [straight, across] : kOrders) {
      for (const auto& [heads, cosines] : kOrders) {
        for (const auto& [turned, sines] : kOrders) {
          Pattern pattern{.steps = {last}, .operands = {}, .own = own_rotary_step};
          const auto& operands = step(last).operands;
          const Step* const one = made_by(operands[straight], "aten::mul", "Tensor", pattern);
          const Step* const other = made_by(operands[across], "aten::mul", "Tensor", pattern);
          if (one == nullptr || other == nullptr || !is_value(one->operands[heads]) ||
              !has_equal_halves(one->operands[cosines]) ||
              !has_equal_halves(other->operands[sines]))
            continue;
          const auto half =
              half_that_turns(other->operands[turned], one->operands[heads].place, pattern);
          if (!half) continue;
          pattern.operands = {one->operands[heads], one->operands[cosines], other->operands[sines],
              {.constant = *half}};
          return pattern;
        }
      }
    }
    return std::nullopt;
  }

  // Of cat([-heads[..., half:], heads[..., :half]], -1).
  std::optional<std::int64_t> half_that_turns(
      const Operand& operand, Place heads, Pattern& pattern) const {
    const Step* const joined = made_by(operand, "aten::cat", "", pattern);
    if (joined == nullptr || joined->operands[0].items.size() != 2 || !is_last(joined->operands[1]))
      return std::nullopt;
    const auto& parts = joined->operands[0].items;
    const Step* const negated = made_by(parts[0], "aten::neg", "", pattern);
    if (negated == nullptr) return std::nullopt;
    const auto second = slice_of(negated->operands[0], heads, pattern);
    const auto first = slice_of(parts[1], heads, pattern);
    if (!first || !second) return std::nullopt;
    const std::int64_t half = first->second;
    const bool are_halves = first->first == 0 && half > 0 && second->first == half &&
                            (second->second == kEnd || second->second == 2 * half);
    return are_halves ? std::optional(half) : std::nullopt;
  }

  static constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

  using Bounds = std::pair<std::int64_t, std::int64_t>;

  /// Finds the begin and the end of a slice that leaves nothing out between them.
  static std::optional<Bounds> bounds_of(const Step& slice) {
    const auto bound = [](const Operand& given, std::int64_t usual) {
      return is_none(given) ? std::optional(usual) : whole_number_of(given);
    };
    const auto begin = bound(slice.operands[2], 0), end = bound(slice.operands[3], kEnd);
    if (!begin || !end || whole_number_of(slice.operands[4]) != 1) return std::nullopt;
    return Bounds{*begin, *end};
  }

  /// Finds those of a slice of the last dimension.
  std::optional<Bounds> slice_of(const Operand& operand, Place of, Pattern& pattern) const {
    const Step* const slice = made_by(operand, "aten::slice", "Tensor", pattern);
    if (slice == nullptr || !is_value(slice->operands[0]) || slice->operands[0].place != of ||
        !is_last(slice->operands[1]))
      return std::nullopt;
    return bounds_of(*slice);
  }

  /// Returns whether an operand is a function, element by element, of cat([x, x], -1).
  bool has_equal_halves(const Operand& operand) const {
    constexpr std::pair<std::string_view, std::string_view> kOfElements[] = {
        {"aten::unsqueeze", ""}, {"aten::to", "dtype"}, {"aten::cos", ""}, {"aten::sin", ""}};
    const Operand* now = &operand;
    while (is_value(*now) && maker_[index(now->place)] && !memory_.is_written(now->place)) {
      const Step& maker = step(*maker_[index(now->place)]);
      const auto& operands = maker.operands;
      if (calls(maker, "aten::cat")) {
        const auto& items = operands[0].items;
        return items.size() == 2 && is_value(items[0]) && is_value(items[1]) &&
               items[0].place == items[1].place && is_constant(operands[1], -1);
      }
      const bool is_scaled = calls(maker, "aten::mul", "Tensor") && number_of(operands[1]);
      if (!is_scaled && std::ranges::none_of(kOfElements, [&](const auto& name) {
            return calls(maker, name.first, name.second);
          }))
        return false;
      now = &operands[0];
    }
    return false;
  }

  // Of queries, keys and values that timm takes of one tensor: reshape, permute, unbind.
  std::optional<Pattern> packed_attention(std::size_t last) const {
    using Of = AttentionArguments;
    if (!calls(step(last), "aten::scaled_dot_product_attention")) return std::nullopt;
    Pattern pattern{.steps = {last}, .operands = {}, .own = own_packed_attention_step};
    const auto& given = step(last).operands;
    const Step* const parts = made_by(given[Of::kQueries], "aten::unbind", "int", pattern);
    const Step* const turned =
        parts == nullptr ? nullptr : made_by(parts->operands[0], "aten::permute", "", pattern);
    const Step* const shaped =
        turned == nullptr ? nullptr : made_by(turned->operands[0], "aten::reshape", "", pattern);
    if (shaped == nullptr || !is_none(given[Of::kMask]) ||
        whole_number_of(parts->operands[1]) != 0 ||
        !are_results_of(*parts, std::span(given).first(Of::kMask)) ||
        !is_constant(turned->operands[1], std::vector<std::int64_t>{2, 0, 3, 1, 4}) ||
        !is_value(shaped->operands[0]))
      return std::nullopt;
    pattern.operands = {shaped->operands[0], shaped->operands[1], given[Of::kDropout],
        given[Of::kIsCausal], given[Of::kScale]};
    return pattern;
  }

  /// Returns whether operands are the items of the list that a step returns, in their order.
  static bool are_results_of(const Step& step, std::span<const Operand> operands) {
    const auto* const places = std::get_if<std::vector<Place>>(&step.results.front());
    return places != nullptr &&
           std::ranges::equal(*places, operands, [](Place place, const Operand& operand) {
             return is_value(operand) && operand.place == place;
           });
  }

  /// Returns whether an operand may be a parameter that is spread over a branch.
  bool may_be_scale(const Operand& scale, const Operand& branch) const {
    return is_value(scale) && index(scale.place) < graph_.inputs &&
           graph_.bytes[index(scale.place)] < graph_.bytes[index(branch.place)];
  }

  // branch * scale + residual, where the scale is a parameter of a vector's items, or of channels.
  std::optional<Pattern> layer_scale(std::size_t last) const {
    if (!calls(step(last), "aten::add", "Tensor") || !has_alpha_one(step(last)))
      return std::nullopt;
    const auto& operands = step(last).operands;
    for (const auto& [scaled, residual] : kOrders) {
      for (const auto& [branch, scale] : kOrders) {
        Pattern pattern{.steps = {last}, .operands = {}, .own = own_layer_scale_step};
        const Step* const product = made_by(operands[scaled], "aten::mul", "Tensor", pattern);
        if (product == nullptr || !is_value(product->operands[branch]) ||
            !is_value(operands[residual]))
          continue;
        const Step* const spread = made_by(product->operands[scale], "aten::reshape", "", pattern);
        const bool is_of_maps = spread != nullptr && is_constant(spread->operands[1],
                                                         std::vector<std::int64_t>{1, -1, 1, 1});
        const Operand& factor = is_of_maps ? spread->operands[0] : product->operands[scale];
        if (!may_be_scale(factor, product->operands[branch])) continue;
        pattern.operands = {
            product->operands[branch], factor, operands[residual], {.constant = is_of_maps}};
        return pattern;
      }
    }
    return std::nullopt;
  }

  // scaled_dot_product_attention with a mask, or with repeated keys and values.
  std::optional<Pattern> attention(std::size_t last) const {
    using Of = AttentionArguments;
    if (!calls(step(last), "aten::scaled_dot_product_attention")) return std::nullopt;
    Pattern pattern{.steps = {last}, .operands = step(last).operands, .own = own_attention_step};
    auto& operands = pattern.operands;
    operands.resize(Of::kCount);
    if (!std::ranges::all_of(std::array{Of::kQueries, Of::kKeys, Of::kValues},
            [&](std::size_t i) { return is_value(operands[i]); }))
      return std::nullopt;
    const bool has_mask = is_value(operands[Of::kMask]);
    Pattern repeats;
    const auto keys = repeated(operands[Of::kKeys], repeats);
    const auto values = repeated(operands[Of::kValues], repeats);
    if (keys && values) {
      pattern.steps.merge(repeats.steps);
      std::tie(operands[Of::kKeys], operands[Of::kExpandedKeys], operands[Of::kKeyShape]) = *keys;
      std::tie(operands[Of::kValues], operands[Of::kExpandedValues], operands[Of::kValueShape]) =
          *values;
    } else if (!has_mask) {
      return std::nullopt;
    }
    return pattern;
  }

  /// Finds what heads are repeated, the sizes to which they are expanded, and the shape that they
  /// get: transformers' repeat_kv.
  std::optional<std::tuple<Operand, Operand, Operand>> repeated(
      const Operand& operand, Pattern& pattern) const {
    const Step* const shaped = made_by(operand, "aten::reshape", "", pattern);
    const Step* const expanded =
        shaped == nullptr ? nullptr : made_by(shaped->operands[0], "aten::expand", "", pattern);
    const Step* const inserted =
        expanded == nullptr ? nullptr
                            : made_by(expanded->operands[0], "aten::unsqueeze", "", pattern);
    if (inserted == nullptr || whole_number_of(inserted->operands[1]) != 2) return std::nullopt;
    const Operand& heads = unsliced(inserted->operands[0], pattern);
    if (!is_value(heads)) return std::nullopt;
    return std::tuple(heads, expanded->operands[1], shaped->operands[1]);
  }

  /// Returns what an operand is all of: Python's heads[:] is a slice.
  const Operand& unsliced(const Operand& operand, Pattern& pattern) const {
    Pattern found;
    const Step* const slice = made_by(operand, "aten::slice", "Tensor", found);
    if (slice == nullptr || bounds_of(*slice) != Bounds{0, kEnd}) return operand;
    pattern.steps.merge(found.steps);
    return unsliced(slice->operands[0], pattern);
  }

  bool may_join(const Pattern& pattern) const {
    const std::size_t first = *pattern.steps.begin(), last = *pattern.steps.rbegin();
    return takes_from_others(pattern) &&
           std::ranges::all_of(pattern.steps, [&](std::size_t number) {
             const Step& node = step(number);
             bool is_whole = number != last || result_of(node);
             visit_results(node, [&](Place place) {
               is_whole = is_whole && (number == last || is_read_within(place, pattern));
             });
             return is_whole && !is_gone_[number] && node.nodes.empty() &&
                    !node.only_in_training_of && reads_what_stays(node, first);
           });
  }

  // What the steps make on the way, the kernel does not.
  bool takes_from_others(const Pattern& pattern) const {
    bool takes = true;
    for (const Operand& operand : pattern.operands)
      visit_values(operand, [&](Place place) {
        const auto& maker = maker_[index(place)];
        takes = takes && (!maker || !pattern.steps.contains(*maker));
      });
    return takes;
  }

  bool is_read_within(Place value, const Pattern& pattern) const {
    return std::ranges::all_of(readers_[index(value)], [&](std::size_t reader) {
      return pattern.steps.contains(reader) || (reader != kOutput && is_assertion(step(reader)));
    });
  }

  bool reads_what_stays(const Step& node, std::size_t from) const {
    bool stays = true;
    for (const Operand& operand : node.operands)
      visit_values(
          operand, [&](Place place) { stays = stays && !memory_.is_written(place, from); });
    return stays;
  }

  void join(Pattern& pattern) {
    const std::size_t last = *pattern.steps.rbegin();
    Step joined{.own = pattern.own,
        .operands = std::move(pattern.operands),
        .results = step(last).results,
        .text = step(last).text,
        .modules = step(last).modules};
    if (pattern.own == own_attention_step) ask_about_mask(joined, last);
    std::set<Place> made, taken;
    for (const std::size_t number : pattern.steps) {
      for (const Operand& operand : step(number).operands)
        visit_values(operand, [&](Place place) { taken.insert(place); });
      visit_results(step(number), [&](Place place) { made.insert(place); });
      is_gone_[number] = number != last;
      joined.nodes.push_back(std::move(graph_.steps[number]));
    }
    for (const Place place : taken)
      if (!made.contains(place)) joined.operands.push_back(plain_value(place));
    made.erase(*result_of(joined));
    for (const Place place : made) drop_assertions(place);
    graph_.steps[last] = std::move(joined);
  }

  void drop_assertions(Place value) {
    for (const std::size_t reader : readers_[index(value)])
      if (is_assertion(step(reader))) is_gone_[reader] = true;
  }

  // The first that asks about a mask asks for all.
  void ask_about_mask(Step& attention, std::size_t number) {
    using Of = AttentionArguments;
    const Operand mask = attention.operands[Of::kMask];
    if (!is_value(mask)) {
      attention.operands[Of::kSeen] = {.constant = static_cast<std::int64_t>(Seen::kOther)};
      return;
    }
    const auto [answer, is_new] =
        answers_.try_emplace(mask.place, static_cast<Place>(graph_.values));
    attention.operands[Of::kSeen] = plain_value(answer->second);
    if (!is_new) return;
    ++graph_.values;
    graph_.bytes.push_back(0);
    graph_.is_number.push_back(true);
    before_[number].push_back({.function = seen_through,
        .operands = {mask},
        .results = {answer->second},
        .text = attention.text,
        .modules = attention.modules});
  }

  GraphParts& graph_;
  SharedMemory memory_;
  std::vector<std::optional<std::size_t>> maker_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> is_gone_;
  std::vector<std::vector<Step>> before_;  // new steps before each
  std::map<Place, Place> answers_;         // what masks let queries see
};

}  // namespace

void fuse_language_steps(GraphParts& graph) { LanguageFusion(graph).run(); }

}  // namespace lockstep::nn::exported
