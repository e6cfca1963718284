// LSTMs of embedded words: which nodes are one step, and that it computes what they do.

#include "lockstep/nn/exported/lstm_fusion.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/exported/nodes_program.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <torch/types.h>

#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_bits;
using lockstep::testing::expect_close;
using lockstep::testing::Fused;
using lockstep::testing::learned;
using lockstep::testing::Nodes;
using lockstep::testing::value;

constexpr std::int64_t kVocabulary = 18, kVector = 3, kWidth = 2, kSequences = 4, kSteps = 5;

/// The ways in which a tagger is written.
struct TaggerForm {
  std::string read = "";
  bool is_read_by_another = false, counts_words = false, is_table_written = false;
};

/// lstm(embedding(table, words)), of words [4, 5].
Nodes tagger_program(const TaggerForm& form = {}) {
  Nodes nodes;
  nodes.input("words", {kSequences, kSteps}, ElementType::kInt64)
      .input("h", {1, kSequences, kWidth})
      .input("c", {1, kSequences, kWidth})
      .weight("table", {kVocabulary, kVector})
      .weight("w", {4 * kWidth, kVector})
      .weight("r", {4 * kWidth, kWidth})
      .weight("b", {4 * kWidth})
      .weight("d", {4 * kWidth})
      .node("vectors", "embedding.default",
          {{"weight", value("table")}, {"indices", value("words")},
              {"padding_idx", {std::int64_t{1}}}, {"scale_grad_by_freq", {form.counts_words}}});
  if (form.is_table_written) nodes.one("written", "relu_.default", "table");
  const ExportedList states{value("h"), value("c")};
  const ExportedList parameters{value("w"), value("r"), value("b"), value("d")};
  nodes.node("y", "lstm.input",
      {{"input", value("vectors")}, {"hx", {states}}, {"params", {parameters}},
          {"has_biases", {true}}, {"num_layers", {std::int64_t{1}}}, {"dropout", {0.0}},
          {"train", {false}}, {"bidirectional", {false}}, {"batch_first", {true}}});
  nodes.program().last_node().outputs = {value("y"), value("hn"), value("cn")};
  for (const char* const more : {"hn", "cn"}) nodes.program().graph().tensors[more] = {};
  if (form.is_read_by_another) nodes.one("more", "neg.default", "vectors");
  nodes.output("y");
  if (!form.read.empty()) nodes.output(form.read);
  return nodes;
}

const Fused kOneTagger{2};

TEST(LstmFusion, JoinsAnEmbeddingAndTheLstmThatReadsIt) {
  EXPECT_EQ(tagger_program().fused(), kOneTagger);
  EXPECT_EQ(tagger_program({.read = "cn"}).fused(), kOneTagger);
}

TEST(LstmFusion, LeavesAloneWhatIsReadOrWrittenBetween) {
  EXPECT_EQ(tagger_program({.read = "vectors"}).fused(), Fused());
  EXPECT_EQ(tagger_program({.is_read_by_another = true}).fused(), Fused());
  EXPECT_EQ(tagger_program({.is_table_written = true}).fused(), Fused());
  EXPECT_EQ(tagger_program({.counts_words = true}).fused(), Fused())
      << "each word would count once";
}

std::vector<at::Tensor> with_states(const at::Tensor& words) {
  torch::manual_seed(3);
  return {words.view({kSequences, kSteps}), at::randn({1, kSequences, kWidth}),
      at::randn({1, kSequences, kWidth})};
}

/// Calls learned(), and returns with its results whether the kernels computed both nodes at once.
std::pair<std::vector<at::Tensor>, bool> learned_at_once(
    const std::vector<at::Tensor>& given, torch::ScalarType type = torch::kFloat) {
  static thread_local bool is_at_once = false;
  is_at_once = false;
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    if (std::string(function.name()) != "lockstep::embedded_lstm") return nullptr;
    is_at_once = true;
    EXPECT_EQ(function.inputs()[0].toTensor().size(0), 4 * kWidth) << "it is the LSTM's layer";
    return nullptr;
  };
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(note).needsInputs(true));
  auto results = learned(tagger_program(), given, Kernels::kOwn, nullptr, type);
  at::removeCallback(handle);
  return {std::move(results), is_at_once};
}

const TaggerForm kPlainTagger{.read = "vectors"};

// Word 1 is padding.
TEST(LstmFusion, ComputesWhatTheNodesDo) {
  const auto given = with_states(at::randint(6, {kSequences * kSteps}, at::kLong));
  const auto wanted = learned(tagger_program(kPlainTagger), given, Kernels::kLibTorch);
  const auto [found, is_at_once] = learned_at_once(given);
  EXPECT_TRUE(is_at_once);
  expect_close(found, wanted);
  expect_close(learned(tagger_program({.read = "cn"}), given, Kernels::kOwn), wanted);
  expect_bits(learned(tagger_program(), given, Kernels::kLibTorch), wanted);
}

TEST(LstmFusion, LeavesOtherWordsAndTypesToTheNodes) {
  const auto many = with_states(at::arange(kSequences * kSteps, at::kLong).remainder(kVocabulary));
  const auto [of_many, is_at_once] = learned_at_once(many);
  EXPECT_FALSE(is_at_once) << "most words stand there once";
  expect_close(of_many, learned(tagger_program(kPlainTagger), many, Kernels::kLibTorch));
  const auto few = with_states(at::randint(6, {kSequences * kSteps}, at::kLong));
  const auto [in_double, is_double_at_once] = learned_at_once(few, torch::kDouble);
  EXPECT_FALSE(is_double_at_once);
  expect_bits(in_double,
      learned(tagger_program(kPlainTagger), few, Kernels::kLibTorch, nullptr, torch::kDouble));
}

}  // namespace
}  // namespace lockstep::nn
