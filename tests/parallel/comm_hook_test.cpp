// Communication hooks: cases J6 and J7 of the conformance list, restated from PyTorch's
// test_ddp_hooks.py and test_c10d_gloo.py.

#include "lockstep/parallel/ddp/comm_hook.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_on_all_ranks;
using testing::message_of;

/// The model of HOOKS: a parameter of 40 x 20 times x to the power 1 + rank.
struct PowerImpl : torch::nn::Module {
  PowerImpl() {
    weight = register_parameter(
        "weight", torch::linspace(-1, 1, 800, torch::kFloat).view({40, 20}).clone());
  }
  torch::Tensor forward(const torch::Tensor& input, int rank) {
    return (weight * input.pow(1 + rank)).sum();
  }
  torch::Tensor weight;
};
TORCH_MODULE(Power);

torch::Tensor gradient_with(const CommHook& hook, const ProcessGroup& group) {
  Power net;
  DistributedDataParallel model(net, group, Options().comm_hook(hook));
  const torch::Tensor input = torch::linspace(0.1, 2, 800, torch::kFloat).view({40, 20});
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    model(input, group.rank()).backward();
  }
  expect_same_on_all_ranks(net->weight.grad(), group);
  return net->weight.grad().clone();
}

TEST(CommHook, J6AllReduceEqualsNoHook) {
  testing::run_ranks(2, [](ProcessGroup group) {
    EXPECT_TRUE(torch::allclose(
        gradient_with(all_reduce_hook, group), gradient_with(nullptr, group), 1e-5, 0));
  });
}

TEST(CommHook, J6AHookMayAverageByHandInASecondStep) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const auto by_hand = [](const GradientBucket& bucket) -> CommStep {
      const torch::Tensor all = torch::empty({bucket.group.size(), bucket.memory.numel()});
      return {bucket.group.all_gather(all, bucket.memory), [memory = bucket.memory, all] {
                memory.copy_(all.mean(0));
                return CommStep{};
              }};
    };
    EXPECT_TRUE(
        torch::allclose(gradient_with(by_hand, group), gradient_with(nullptr, group), 1e-5, 0));
  });
}

TEST(CommHook, J6HalfTypesAreCloseToNoHook) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor exact = gradient_with(nullptr, group);
    const torch::Tensor fp16 = gradient_with(fp16_compress_hook, group);
    const torch::Tensor bf16 = gradient_with(bf16_compress_hook, group);
    EXPECT_TRUE(torch::allclose(fp16, exact, 1e-3, 1e-4));
    EXPECT_TRUE(torch::allclose(bf16, exact, 1e-2, 1e-4));
    EXPECT_FALSE(torch::equal(fp16, exact)) << "nothing was compressed";
    EXPECT_FALSE(torch::equal(bf16, exact)) << "nothing was compressed";
  });
}

TEST(CommHook, Fp16DoesNotOverflowInTheSumOfTheRanks) {
  testing::run_ranks(4, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(constant({1, 1}, 60000)).sum().backward();
    EXPECT_EQ(net->weight.grad().item<float>(), 60000);
  });
}

TEST(CommHook, Fp16DividesBeforeItNarrows) {
  testing::run_ranks(4, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(constant({1, 1}, group.rank() == 0 ? 131072 : 0)).sum().backward();
    EXPECT_EQ(net->weight.grad().item<float>(), 32768);
  });
}

// PyTorch narrows first, then divides: with 2 ranks the same bits, unless the quotient is subnormal
// in fp16. Then it rounds twice, and ours is the nearer one.
TEST(CommHook, Fp16DiffersFromPyTorchInSubnormalNumbersOnly) {
  testing::run_ranks(2, [](ProcessGroup group) {
    const torch::Tensor exact = torch::logspace(-8, 4, 4000, 10, torch::kFloat);
    const torch::Tensor theirs = exact.to(torch::kHalf).div(2).mul(2).to(torch::kFloat);
    Linear net(LinearOptions(4000, 1).bias(false));
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(exact.view({1, 4000})).sum().backward();
    const torch::Tensor ours = net->weight.grad().flatten();
    const torch::Tensor is_normal = exact.div(2).ge(std::ldexp(1.0, -14));
    EXPECT_TRUE(torch::equal(ours.masked_select(is_normal), theirs.masked_select(is_normal)));
    EXPECT_FALSE(torch::equal(ours, theirs));
    EXPECT_TRUE((ours - exact).abs().le((theirs - exact).abs()).all().item<bool>());
  });
}

TEST(CommHook, WhatIsNarrowAlreadyIsNotCompressedAgain) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    net->to(torch::kBFloat16);
    DistributedDataParallel model(net, group, Options().comm_hook(fp16_compress_hook));
    model(torch::full({1, 1}, 1e20, torch::kBFloat16)).sum().backward();
    EXPECT_TRUE(net->weight.grad().isfinite().all().item<bool>());
  });
}

torch::nn::Sequential wide_layers(int count) {
  torch::nn::Sequential net;
  for (int layer = 0; layer < count; ++layer)
    net->push_back(Linear(LinearOptions(50, 50).bias(false)));
  return net;
}

TEST(CommHook, J7TheLastBucketIsMarkedAndBucketsComeInOrder) {
  testing::run_ranks(2, [](ProcessGroup group) {
    auto net = wide_layers(11);
    auto seen = std::make_shared<std::vector<GradientBucket>>();
    DistributedDataParallel model(
        net, group, Options().first_bucket_bytes(10'000).bucket_bytes(20'000));
    model.register_comm_hook([seen](const GradientBucket& bucket) {
      seen->push_back(bucket);
      return all_reduce_hook(bucket);
    });
    for (int step = 0; step < 3; ++step) {
      seen->clear();
      model(torch::ones({1, 50})).sum().backward();
      ASSERT_EQ(seen->size(), 6u);
      std::size_t parameters = 0;
      for (std::size_t index = 0; index < seen->size(); ++index) {
        const GradientBucket& bucket = (*seen)[index];
        EXPECT_EQ(bucket.index, index);
        EXPECT_EQ(bucket.is_last, index == 5);
        parameters += bucket.parameters.size();
        const float* memory = bucket.memory.data_ptr<float>();
        for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
          EXPECT_EQ(bucket.gradients[i].sizes(), bucket.parameters[i].sizes());
          EXPECT_EQ(bucket.gradients[i].data_ptr<float>(), memory);
          memory += bucket.gradients[i].numel();
          EXPECT_TRUE(torch::equal(bucket.gradients[i], bucket.parameters[i].grad()));
        }
      }
      EXPECT_EQ(parameters, 11u);
    }
  });
}

TEST(CommHook, J7ASecondHookIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    auto net = wide_layers(1);
    DistributedDataParallel model(net, group, Options().comm_hook(all_reduce_hook));
    EXPECT_THAT(message_of<std::exception>([&] { model.register_comm_hook(fp16_compress_hook); }),
        HasSubstr("there is a communication hook already"));
    EXPECT_THROW(model.register_comm_hook(nullptr), InvalidArgument);
  });
}

TEST(CommHook, AnErrorOfAHookReachesTheCallerOfBackward) {
  EXPECT_THROW(testing::run_ranks(2,
                   [](ProcessGroup group) {
                     Linear net(1, 1);
                     DistributedDataParallel model(
                         net, group, Options().comm_hook([](const GradientBucket&) -> CommStep {
                           throw std::domain_error("hook");
                         }));
                     model(torch::ones({1, 1})).sum().backward();
                   }),
      std::domain_error);
}

// The steps of several buckets interleave; on all ranks alike, or the collectives would not meet.
TEST(CommHook, StepsOfAllBucketsComeInOneOrder) {
  testing::run_ranks(3, [](ProcessGroup group) {
    auto net = wide_layers(3);
    auto steps = std::make_shared<std::vector<std::string>>();
    const auto hook = [steps](const GradientBucket& bucket) -> CommStep {
      steps->push_back(concat("begin ", bucket.index));
      return {bucket.group.barrier(), [steps, bucket]() -> CommStep {
                steps->push_back(concat("next ", bucket.index));
                return {bucket.group.all_reduce(bucket.memory, ReduceOp::kMean)};
              }};
    };
    DistributedDataParallel model(net, group,
        Options().comm_hook(hook).find_unused_parameters(true).first_bucket_bytes(1).bucket_bytes(
            1));
    // Rank 1 leaves the last layer out: its first bucket is full only at the end of backward.
    const torch::Tensor out = model(torch::ones({1, 50}));
    const torch::Tensor part = net[0]->as<Linear>()->forward(torch::ones({1, 50}));
    (group.rank() == 1 ? part : out).sum().backward();
    EXPECT_THAT(*steps, ElementsAre("begin 0", "begin 1", "begin 2", "next 0", "next 1", "next 2"));
    for (const auto& parameter : net->parameters())
      expect_same_on_all_ranks(parameter.grad(), group);
  });
}

}  // namespace
}  // namespace lockstep
