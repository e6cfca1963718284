#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

std::string refusal_of_cut(const Layers& layers, const std::vector<int>& balance) {
  return testing::message_of<InvalidArgument>([&] { cut(layers, balance); });
}

TEST(Layers, AreNamedAsTheChildrenOfASequential) {
  const auto layers = layers_of(testing::make_chain({2, 3, 4}));
  EXPECT_THAT(layers.keys(), ::testing::ElementsAre("0", "1", "2"));
}

TEST(Layers, P8WrongBalanceIsRefusedWithAdvice) {
  const auto layers = layers_of(testing::make_chain({2, 3, 4}));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("adds up to 2 layers, the model has 3"));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("balance_by_time"));
  EXPECT_THAT(
      refusal_of_cut(layers, {3, 0}), HasSubstr("every stage needs at least 1 layer, one has 0"));
  EXPECT_THAT(
      refusal_of_cut(layers, {4, -1}), HasSubstr("every stage needs at least 1 layer, one has -1"));
  EXPECT_THAT(refusal_of_cut(layers, {}), HasSubstr("there is no stage"));
}

TEST(Layers, P8LayerTwiceIsRefused) {
  const torch::nn::Linear layer(2, 2);
  Layers layers;
  layers.insert("first", torch::nn::AnyModule(layer));
  layers.insert("second", torch::nn::AnyModule(layer));
  EXPECT_THAT(
      refusal_of_cut(layers, {1, 1}), HasSubstr("layer second is the same module as layer first"));
}

TEST(Layers, P8ParameterInTwoStagesIsRefusedInOneIsNot) {
  torch::nn::Linear first(2, 2), second(2, 2);
  second->weight = second->register_parameter("shared", first->weight);
  Layers layers;
  layers.insert("first", torch::nn::AnyModule(first));
  layers.insert("second", torch::nn::AnyModule(second));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("second.shared in stage 1"));
  EXPECT_EQ(cut(layers, {2}).size(), 1U);
}

TEST(Layers, ParametersAreListedOnce) {
  const auto net = testing::make_chain({2, 3, 4});
  EXPECT_EQ(parameters_of(layers_of(net)).size(), 4U);
}

// Conformance 5.1: the rule of tensor_split, empty pieces left out.
TEST(MicroBatch, SizesFollowTensorSplit) {
  EXPECT_EQ(micro_batch_sizes(8, 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(7, 4), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(micro_batch_sizes(6, 4), (Sizes{2, 2, 1, 1}));
  EXPECT_EQ(micro_batch_sizes(5, 4), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(micro_batch_sizes(9, 4), (Sizes{3, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(2, 4), (Sizes{1, 1}));
}

TEST(MicroBatch, SizesAgreeWithTensorSplit) {
  for (std::int64_t batch = 1; batch < 40; ++batch) {
    for (int chunks = 1; chunks < 12; ++chunks) {
      Sizes expected;
      for (const auto& piece : torch::empty({batch}).tensor_split(chunks)) {
        if (piece.numel() > 0) expected.push_back(piece.numel());
      }
      EXPECT_EQ(micro_batch_sizes(batch, chunks), expected);
    }
  }
}

TEST(MicroBatch, SplitThenMergeIsTheIdentity) {
  const auto batch = torch::randn({7, 3});
  EXPECT_TRUE(torch::equal(torch::cat(split_batch(batch, micro_batch_sizes(7, 4))), batch));
}

TEST(MicroBatch, RefusesNoChunksAndNoSamples) {
  EXPECT_THROW(micro_batch_sizes(4, 0), InvalidArgument);
  EXPECT_THROW(micro_batch_sizes(4, -1), InvalidArgument);
  EXPECT_THROW(micro_batch_sizes(0, 2), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
