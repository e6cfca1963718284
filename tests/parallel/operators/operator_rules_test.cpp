#include "lockstep/parallel/operators/operator_rules.h"

#include <gtest/gtest.h>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/batch_norm_relu.h"

namespace lockstep {
namespace {

class CountingRule : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override {
    ++calls;
    return batch_norm_without_running_statistics(call);
  }
  int calls = 0;
};

TEST(BatchNormRule, SeesTheLayersInsideUnmodifiedModules) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4));
  const auto images = torch::randn({2, 3, 5, 5});
  CountingRule rule;
  {
    const BatchNormScope scope(rule);
    net->forward(images);
    net->eval();
    net->forward(images);
  }
  net->train();
  net->forward(images);
  EXPECT_EQ(rule.calls, 1);
}

TEST(BatchNormRule, IsDifferentiable) {
  torch::nn::BatchNorm1d plain(4), ruled(4);
  const auto input = torch::randn({6, 4});
  const auto weights = torch::randn({6, 4});
  (plain(input) * weights).sum().backward();
  FrozenStatistics rule;
  const BatchNormScope scope(rule);
  (ruled(input) * weights).sum().backward();
  EXPECT_TRUE(torch::equal(plain->weight.grad(), ruled->weight.grad()));
  EXPECT_TRUE(torch::equal(ruled->running_mean, torch::zeros({4})));
}

torch::nn::InstanceNorm2d tracking_instance_norm() {
  return torch::nn::InstanceNorm2d(
      torch::nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true));
}

// LibTorch computes it by a batch norm.
TEST(BatchNormRule, LeavesInstanceNormAlone) {
  torch::nn::InstanceNorm2d norm(3), tracking = tracking_instance_norm();
  const auto images = torch::randn({4, 3, 5, 5});
  const auto expected = norm(images), normalised = tracking(images);
  const auto mean = tracking->running_mean.clone();
  tracking->running_mean.zero_();
  CountingRule rule;
  const BatchNormScope scope(rule);
  EXPECT_TRUE(norm(images).equal(expected));
  EXPECT_TRUE(tracking(images).equal(normalised));
  EXPECT_TRUE(tracking->running_mean.equal(mean));
  EXPECT_EQ(rule.calls, 0);
}

TEST(FrozenStatistics, AreThoseOfInstanceNormToo) {
  auto norm = tracking_instance_norm();
  const auto images = torch::randn({4, 3, 5, 5}) + 2;
  const auto expected = norm(images);
  const auto mean = norm->running_mean.clone(), variance = norm->running_var.clone();
  FrozenStatistics rule;
  const BatchNormScope scope(rule);
  EXPECT_TRUE(norm(images).equal(expected));
  EXPECT_TRUE(norm->running_mean.equal(mean));
  EXPECT_TRUE(norm->running_var.equal(variance));
}

TEST(DeferredBatchNorm, InstanceNormHasTheStatisticsOfAllSamples) {
  auto whole = tracking_instance_norm(), parts = tracking_instance_norm();
  DeferredBatchNorm rule;
  for (int step = 0; step < 3; ++step) {
    const auto images = torch::randn({5, 3, 4, 4}) * 3 + 1;
    const auto expected = whole(images).tensor_split(2);
    {
      const BatchNormScope scope(rule);
      const auto halves = images.tensor_split(2);  // of 3 and of 2
      for (std::size_t half = 0; half < 2; ++half)
        EXPECT_TRUE(torch::allclose(parts(halves[half]), expected[half]));
    }
    rule.commit();
  }
  EXPECT_TRUE(torch::allclose(parts->running_mean, whole->running_mean, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(parts->running_var, whole->running_var, 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(whole->running_mean, torch::zeros({3}), 0, 0.1));
}

/// A rule that is a function.
class RuleBy : public BatchNormRule {
 public:
  using Function = torch::Tensor (*)(const BatchNormCall&);
  explicit RuleBy(Function function) : function_(function) {}
  torch::Tensor batch_norm(const BatchNormCall& call) override { return function_(call); }

 private:
  Function function_;
};

// A layer whose ReLU is computed in the same pass asks the rule all the same.
class RulesAboveFusedKernels : public ::testing::Test {
 protected:
  torch::Tensor output(BatchNormRule& rule) {
    const BatchNormScope scope(rule);
    return nn::fused::batch_norm_relu(layer_, input_, addend_);
  }

  const nn::KernelScope own_{nn::Kernels::kOwn};
  torch::nn::BatchNorm2d layer_{3};
  torch::Tensor input_ = torch::randn({4, 3, 5, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  torch::Tensor addend_ = torch::randn_like(input_);
};

TEST_F(RulesAboveFusedKernels, ThatComputeByTheOperatorGetTheFusedOne) {
  CountingRule rule;
  const auto fused = output(rule);
  EXPECT_EQ(rule.calls, 1);
  EXPECT_TRUE(torch::allclose(fused, (layer_(input_) + addend_).relu(), 1e-5, 1e-5));
  EXPECT_NE(fused.grad_fn()->name().find("FusedBatchNorm"), std::string::npos);
}

TEST_F(RulesAboveFusedKernels, ThatComputeInTheirOwnWayAreAddedToAndRectified) {
  RuleBy doubled([](const BatchNormCall& call) { return call.input * 2; });
  EXPECT_TRUE(output(doubled).equal((input_ * 2 + addend_).relu()));
}

TEST_F(RulesAboveFusedKernels, ThatChangeTheOperatorsResultAreRefused) {
  RuleBy negated(
      [](const BatchNormCall& call) { return -batch_norm_without_running_statistics(call); });
  EXPECT_THROW(output(negated), Error);
}

// P10: 16 images in micro-batches of 4; the running values are those of the whole batch.
void expect_statistics_of_the_whole_batch(std::optional<double> momentum, int steps) {
  const torch::nn::BatchNorm2dOptions options = torch::nn::BatchNorm2dOptions(3).momentum(momentum);
  torch::nn::BatchNorm2d whole(options), parts(options);
  DeferredBatchNorm rule;
  for (int step = 0; step < steps; ++step) {
    const auto images = torch::randn({16, 3, 24, 24}) * 3 + 1;
    whole(images);
    const auto before = parts->num_batches_tracked.clone();
    {
      const BatchNormScope scope(rule);
      for (const auto& part : images.tensor_split(4)) {
        parts->num_batches_tracked.copy_(before);
        const auto output = parts(part);
        EXPECT_NEAR(output.mean().item<double>(), 0, 1e-6);  // its own statistics
      }
    }
    rule.commit();
  }
  EXPECT_TRUE(torch::allclose(parts->running_mean, whole->running_mean, 1e-6, 1e-7));
  EXPECT_TRUE(torch::allclose(parts->running_var, whole->running_var, 1e-6, 1e-7));
  EXPECT_TRUE(torch::equal(parts->num_batches_tracked, whole->num_batches_tracked));
}

TEST(DeferredBatchNorm, P10WithMomentumAndCumulative) {
  expect_statistics_of_the_whole_batch(0.1, 3);
  expect_statistics_of_the_whole_batch(std::nullopt, 3);
}

TEST(DeferredBatchNorm, CommitsOnce) {
  torch::nn::BatchNorm1d layer(2);
  DeferredBatchNorm rule;
  {
    const BatchNormScope scope(rule);
    layer(torch::randn({4, 2}));
  }
  rule.commit();
  const auto after = layer->running_mean.clone();
  rule.commit();
  EXPECT_TRUE(torch::equal(layer->running_mean, after));
  EXPECT_FALSE(torch::equal(after, torch::zeros({2})));
}

TEST(DeferredBatchNorm, DiscardForgetsWhatCame) {
  torch::nn::BatchNorm1d layer(2), expected(2);
  const auto input = torch::randn({4, 2});
  expected(input);
  DeferredBatchNorm rule;
  const BatchNormScope scope(rule);
  layer(torch::randn({4, 2}) + 100);
  rule.discard();
  layer(input);
  rule.commit();
  EXPECT_TRUE(torch::allclose(layer->running_mean, expected->running_mean));
}

at::Generator generator_of(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

torch::Tensor dropped(std::uint64_t seed) {
  const RandomStream stream(generator_of(seed));
  torch::nn::Dropout dropout(0.5);
  return dropout(torch::ones({1000}));
}

TEST(RandomStream, GivesTheSameDropoutForTheSameSeed) {
  const auto first = dropped(1);
  torch::randn({17});
  EXPECT_TRUE(torch::equal(dropped(1), first));
  EXPECT_FALSE(torch::equal(dropped(2), first));
}

TEST(RandomStream, LeavesTheCommonGeneratorAlone) {
  torch::manual_seed(5);
  const auto expected = torch::randn({8});
  torch::manual_seed(5);
  dropped(1);
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected));
}

TEST(RandomStream, DrawsWhatTheGeneratorGivesAndLeavesNamedOnesAlone) {
  const auto expected = torch::randn({8}, generator_of(3));
  const auto expected_of_named = torch::randn({8}, generator_of(9));
  const RandomStream stream(generator_of(3));
  EXPECT_TRUE(torch::equal(torch::randn({8}, generator_of(9)), expected_of_named));
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected));
}

TEST(RandomStream, GivesTheSeedsOfStreamsWithinIt) {
  const auto seeds = [] {
    const RandomStream stream(generator_of(3));
    const std::uint64_t first = draw_stream_seed();
    return std::pair(first, draw_stream_seed());
  };
  torch::manual_seed(5);
  const auto expected = torch::randn({8});
  torch::manual_seed(5);
  const auto first = seeds(), second = seeds();
  EXPECT_EQ(first, second);
  EXPECT_NE(first.first, first.second);
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected)) << "drawn from the common generator";
}

TEST(RandomStream, NestsAndBelongsToItsThread) {
  auto outer = generator_of(1);
  const RandomStream stream(outer);
  const auto before = outer.get_state();
  {
    const RandomStream inner(generator_of(2));
    torch::randn({8});
  }
  std::thread([] { torch::randn({8}); }).join();
  EXPECT_TRUE(torch::equal(outer.get_state(), before));
  torch::randn({8});
  EXPECT_FALSE(torch::equal(outer.get_state(), before));
}

}  // namespace
}  // namespace lockstep
