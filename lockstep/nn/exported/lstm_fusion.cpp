#include "lockstep/nn/exported/lstm_fusion.h"

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ops/_unique2.h>
#include <ATen/ops/embedding.h>
#include <ATen/record_function.h>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/shared_memory.h"
#include "lockstep/nn/exported/step_queries.h"
#include "lockstep/nn/fused/lstm.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::exported {
namespace {

using at::Tensor;
using c10::IValue;

/// The arguments of embedding that the step takes, and those of lstm behind its input.
struct EmbeddedLstmArguments {
  enum : std::size_t {
    kTable,
    kWords,
    kPadding,
    kStates,
    kParameters,
    kHasBiases,
    kLayers,
    kDropout,
    kTraining,
    kBidirectional,
    kBatchFirst,
    kCount
  };
};

/// The call of lstm, with the tensors of its lists.
class EmbeddedLstm {
 public:
  explicit EmbeddedLstm(const std::vector<IValue>& stack)
      : stack_(stack),
        states_(stack[Of::kStates].toTensorVector()),
        parameters_(stack[Of::kParameters].toTensorVector()) {}

  fused::LstmCall of(const Tensor& rows, const Tensor& places) const {
    return {.input = rows,
        .states = states_,
        .parameters = parameters_,
        .has_biases = stack_[Of::kHasBiases].toBool(),
        .layers = stack_[Of::kLayers].toInt(),
        .dropout = stack_[Of::kDropout].toDouble(),
        .is_training = stack_[Of::kTraining].toBool(),
        .is_bidirectional = stack_[Of::kBidirectional].toBool(),
        .batch_first = stack_[Of::kBatchFirst].toBool(),
        .places = places};
  }

  /// A profile counts the step to the layer of this parameter.
  const Tensor& first_parameter() const { return parameters_.front(); }

 private:
  using Of = EmbeddedLstmArguments;

  const std::vector<IValue>& stack_;
  std::vector<Tensor> states_, parameters_;
};

// What is saved must be worth the search, and that rows are added up.
bool are_few(const Tensor& distinct, const Tensor& words) {
  return 4 * distinct.numel() <= 3 * words.numel();
}

bool own_embedded_lstm_step(std::vector<IValue>& stack) {
  using Of = EmbeddedLstmArguments;
  const Tensor &table = stack[Of::kTable].toTensor(), &words = stack[Of::kWords].toTensor();
  const EmbeddedLstm lstm(stack);
  if (table.dim() != 2 || !fused::is_lstm_for_own(lstm.of(table, words))) return false;
  const auto [distinct, places, counts] =
      at::_unique2(words, /*sorted=*/true, /*return_inverse=*/true);
  if (!are_few(distinct, words)) return false;
  RECORD_FUNCTION(
      "lockstep::embedded_lstm", c10::ArrayRef<const IValue>({lstm.first_parameter(), words}));
  const auto rows = at::embedding(table, distinct, stack[Of::kPadding].toInt());
  auto [outputs, states, cells] =
      fused::own_lstm(fused::lstm_kernels().back(), lstm.of(rows, places));
  stack.assign({std::move(outputs), std::move(states), std::move(cells)});
  return true;
}

bool is_off(const Operand& operand) {
  return operand.kind == Operand::Kind::kConstant && operand.constant.isBool() &&
         !operand.constant.toBool();
}

class LstmFusion {
 public:
  explicit LstmFusion(GraphParts& graph) : graph_(graph), memory_(graph), uses_(uses_of(graph)) {}

  void run() {
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      const auto embedding = embedding_of(i);
      if (embedding) join(*embedding, i);
    }
    std::vector<Step> left;
    for (std::size_t i = 0; i < graph_.steps.size(); ++i)
      if (!gone_.contains(i)) left.push_back(std::move(graph_.steps[i]));
    graph_.steps = std::move(left);
  }

 private:
  const Step& step(std::size_t number) const { return graph_.steps[number]; }

  // A plain embedding whose only reader is the LSTM.
  std::optional<std::size_t> embedding_of(std::size_t lstm) const {
    if (!calls(step(lstm), "aten::lstm", "input") || !is_value(step(lstm).operands[0]))
      return std::nullopt;
    const Place input = step(lstm).operands[0].place;
    if (uses_[static_cast<std::size_t>(input)] != 1) return std::nullopt;
    for (std::size_t i = 0; i < lstm; ++i) {
      const auto* const made =
          step(i).results.empty() ? nullptr : std::get_if<Place>(&step(i).results.front());
      if (made == nullptr || *made != input) continue;
      return is_plain_embedding(step(i)) && reads_what_stays(step(i), i) ? std::optional(i)
                                                                         : std::nullopt;
    }
    return std::nullopt;
  }

  static bool is_plain_embedding(const Step& step) {
    constexpr std::size_t kByFrequency = 3, kSparse = 4;
    return calls(step, "aten::embedding") && is_value(step.operands[0]) &&
           is_value(step.operands[1]) && is_off(step.operands[kByFrequency]) &&
           is_off(step.operands[kSparse]);
  }

  bool reads_what_stays(const Step& embedding, std::size_t from) const {
    return !memory_.is_written(embedding.operands[0].place, from) &&
           !memory_.is_written(embedding.operands[1].place, from);
  }

  void join(std::size_t embedding, std::size_t last) {
    Step& lookup = graph_.steps[embedding];
    Step& lstm = graph_.steps[last];
    Step joined{.own = own_embedded_lstm_step,
        .operands = {lookup.operands[0], lookup.operands[1], lookup.operands[2]},
        .results = lstm.results,
        .text = lstm.text,
        .modules = lstm.modules};
    joined.operands.insert(joined.operands.end(), lstm.operands.begin() + 1, lstm.operands.end());
    // For the nodes.
    std::set<Place> taken;
    for (const Operand& operand : joined.operands)
      visit_values(operand, [&](Place place) { taken.insert(place); });
    for (const Place place : taken)
      joined.operands.push_back({.kind = Operand::Kind::kValue, .place = place});
    joined.nodes.push_back(std::move(lookup));
    joined.nodes.push_back(std::move(lstm));
    graph_.steps[last] = std::move(joined);
    gone_.insert(embedding);
  }

  GraphParts& graph_;
  SharedMemory memory_;
  std::vector<std::size_t> uses_;
  std::set<std::size_t> gone_;
};

}  // namespace

void fuse_embedded_lstms(GraphParts& graph) { LstmFusion(graph).run(); }

}  // namespace lockstep::nn::exported
