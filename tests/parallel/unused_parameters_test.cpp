// Parameters that a backward pass leaves out, on some ranks or on all; cases D5 to D10 of the
// conformance list.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "replica_checks.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_on_all_ranks;

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", Linear(LinearOptions(1, 1).bias(false)));
    b = register_module("b", Linear(LinearOptions(1, 1).bias(false)));
    c = register_module("c", Linear(LinearOptions(1, 1).bias(false)));
  }
  torch::Tensor forward(const torch::Tensor& input, bool use_a) {
    return use_a ? a(input) : b(input);
  }
  Linear a{nullptr}, b{nullptr}, c{nullptr};
};
TORCH_MODULE(Branches);

TEST(UnusedParameters, D6WhatSomeRankUsedIsAveragedWhatNoneUsedStaysUndefined) {
  run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(constant({1, 1}, 2), group.rank() == 0).sum().backward();
      EXPECT_EQ(net->a->weight.grad().item<float>(), 1);
      EXPECT_EQ(net->b->weight.grad().item<float>(), 1);
      EXPECT_FALSE(net->c->weight.grad().defined());
    }
  });
}

// With a bucket per parameter one rank's are full early, another's only at the end of backward: all
// the same they must travel in one order.
TEST(UnusedParameters, D6BucketsTravelInOneOrderWhateverARankUses) {
  run_ranks(3, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(
        net, group, Options().find_unused_parameters(true).first_bucket_bytes(1).bucket_bytes(1));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      model(constant({1, 1}, 3), group.rank() == step % 3).sum().backward();
      EXPECT_EQ(net->a->weight.grad().item<float>(), 1);
      EXPECT_EQ(net->b->weight.grad().item<float>(), 2);
      EXPECT_FALSE(net->c->weight.grad().defined());
    }
  });
}

// In the first pass rank 0 reaches every parameter and rank 1 does not: whether buckets are cut
// anew must not depend on it.
TEST(UnusedParameters, D10ARankThatUsesEverythingDoesNotRebuildAlone) {
  run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(1, 1), Linear(1, 1));
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const torch::Tensor out = model(torch::ones({1, 1}));
      const torch::Tensor part = net[0]->as<Linear>()->forward(torch::ones({1, 1}));
      (group.rank() == 0 ? out : part).sum().backward();
      for (const auto& parameter : net->parameters())
        expect_same_on_all_ranks(parameter.grad(), group);
    }
  });
}

TEST(UnusedParameters, D5ALayerUsedOnlyInTheAccumulatedPassIsAveragedToo) {
  run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    {
      auto accumulate = model.no_sync();
      model(constant({1, 1}, group.rank() + 1), true).sum().backward();
    }
    model(constant({1, 1}, 4), false).sum().backward();
    EXPECT_EQ(net->a->weight.grad().item<float>(), 1.5f);
    EXPECT_EQ(net->b->weight.grad().item<float>(), 4);
  });
}

TEST(UnusedParameters, D7AnUnusedParameterIsAnErrorThatNamesRankParameterAndRemedy) {
  run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group);
    const std::string text = testing::message_of<std::exception>([&] {
      model(torch::ones({1, 1}), true).sum().backward();
    });
    EXPECT_THAT(text, HasSubstr("gave no gradient to b.weight, c.weight"));
    EXPECT_THAT(text, HasSubstr("find_unused_parameters(true)"));
  });
}

// Only rank 1 leaves a layer out: rank 0 waits for it and must learn of it.
TEST(UnusedParameters, D7TheOtherRanksLearnTheReason) {
  run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(1, 1), Linear(1, 1));
    DistributedDataParallel model(net, group, Options().first_bucket_bytes(1).bucket_bytes(1));
    const std::string text = testing::message_of<std::exception>([&] {
      const torch::Tensor out = model(torch::ones({1, 1}));
      (group.rank() == 0 ? out : net[1]->as<Linear>()->forward(torch::ones({1, 1})))
          .sum()
          .backward();
    });
    EXPECT_THAT(text, HasSubstr("backward on rank 1 gave no gradient to"));
    EXPECT_THAT(text, HasSubstr("0.weight"));
  });
}

TEST(UnusedParameters, D10DifferentGraphsPerRankEndEqual) {
  run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      model(torch::ones({1, 1}), (step + group.rank()) % 2 == 0).sum().backward();
      optimizer.step();
    }
    for (const auto& parameter : net->parameters()) expect_same_on_all_ranks(parameter, group);
  });
}

}  // namespace
}  // namespace lockstep
