#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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
