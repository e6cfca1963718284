#include "lockstep/parallel/pipeline/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}),
      AllOf(HasSubstr("adds up to 2 layers, the model has 3"), HasSubstr("balance_by_time")));
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

// Conformance 5.1, empty pieces left out.
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

torch::nn::Sequential with_skips() {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), Stash("far"), torch::nn::Linear(4, 4),
      Stash("near"), torch::nn::Tanh(), Pop("near"), torch::nn::Linear(4, 4),
      Pop("far",
          [](const torch::Tensor& input, const torch::Tensor& kept) {
            return torch::cat({input, kept}, 1);
          }),
      torch::nn::Linear(8, 2));
  net->to(torch::kDouble);
  return net;
}

torch::Tensor by_hand(const torch::nn::Sequential& net, const torch::Tensor& input) {
  const auto linear = [&](std::size_t index, const torch::Tensor& x) {
    return net->ptr<torch::nn::LinearImpl>(index)->forward(x);
  };
  const auto far = linear(0, input);
  const auto near = linear(2, far);
  return linear(8, torch::cat({linear(6, near.tanh() + near), far}, 1));
}

TEST(Skip, WorksInAPlainSequential) {
  auto net = with_skips();
  const auto input = torch::randn({3, 4}, torch::kDouble);
  EXPECT_TRUE(torch::allclose(net->forward(input), by_hand(net, input)));
}

// P9: kept in stage 0, used in stage 2 or 3, past the stages between.
TEST(Skip, P9AcrossStages) {
  auto net = with_skips();
  auto copy = testing::copy_of(net);
  const auto input = torch::randn({5, 4}, torch::kDouble);
  const auto target = torch::randn({5, 2}, torch::kDouble);
  testing::mean_loss(by_hand(copy, input), target).backward();
  for (const auto kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    for (const auto checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
      net->zero_grad();
      Pipeline pipeline(layers_of(net), {2, 2, 2, 3}, testing::places(4),
          PipelineOptions().chunks(3).schedule(kind).checkpoint(checkpoint));
      pipeline.step(input, target, testing::mean_loss);
      testing::expect_same_gradients(*net, *copy);
    }
  }
}

TEST(Skip, CrossesTheBoundariesBetweenItsEnds) {
  const auto stages = cut(layers_of(with_skips()), {2, 3, 1, 3});
  EXPECT_THAT(skips_across(stages),
      ElementsAre(ElementsAre("far"), ElementsAre("far", "near"), ElementsAre("far")));
}

TEST(Skip, EndsThatDoNotMatchAreRefused) {
  const auto refused = [](const torch::nn::Sequential& net) {
    return [net] { skips_across({layers_of(net)}); };
  };
  EXPECT_THROW(refused(torch::nn::Sequential(Pop("a"), Stash("a")))(), InvalidArgument);
  EXPECT_THROW(refused(torch::nn::Sequential(Stash("a")))(), InvalidArgument);
  EXPECT_THROW(refused(torch::nn::Sequential(Stash("a"), Pop("a"), Stash("a"), Pop("a")))(),
      InvalidArgument);
  EXPECT_THROW(refused(torch::nn::Sequential(Stash("a"), Pop("a"), Pop("a")))(), InvalidArgument);
}

TEST(Skip, PopWithoutStashThrows) { EXPECT_THROW(Pop("nothing")(torch::ones({1})), Error); }

// Nothing leaks: what was kept is let go of by the Pop.
TEST(Skip, P9NothingIsKeptAfterThePop) {
  SkipTable table;
  const SkipScope scope(table);
  auto net = with_skips();
  net->forward(torch::randn({3, 4}, torch::kDouble));
  EXPECT_THAT(table, IsEmpty());
}

}  // namespace
}  // namespace lockstep
