// Parameters that a backward pass leaves out, on some ranks or on all; cases D5 to D10 of the
// conformance list.
// Parameters and buffers that each rank keeps to itself: case D12 of the conformance list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "three_layers.h"
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_on_all_ranks;
using testing::gradient_of;
using testing::message_of;
using torch::nn::Linear;
using torch::nn::LinearOptions;

struct BranchesImpl : testing::ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input, bool use_first) {
    return use_first ? first(input) : second(input);
  }
};
TORCH_MODULE(Branches);

TEST(UnusedParameters, D6WhatSomeRankUsedIsAveragedWhatNoneUsedStaysUndefined) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(constant({1, 1}, 2), group.rank() == 0).sum().backward();
      EXPECT_EQ(gradient_of(net->first), 1);
      EXPECT_EQ(gradient_of(net->second), 1);
      EXPECT_FALSE(net->third->weight.grad().defined());
    }
  });
}

// With a bucket per parameter one rank's are full early, another's only at the end of backward: all
// the same they must travel in one order.
TEST(UnusedParameters, D6BucketsTravelInOneOrderWhateverARankUses) {
  testing::run_ranks(3, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, testing::one_each().find_unused_parameters(true));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      model(constant({1, 1}, 3), group.rank() == step % 3).sum().backward();
      EXPECT_EQ(gradient_of(net->first), 1);
      EXPECT_EQ(gradient_of(net->second), 2);
      EXPECT_FALSE(net->third->weight.grad().defined());
    }
  });
}

// In the first pass rank 0 reaches every parameter and rank 1 does not: whether buckets are cut
// anew must not depend on it.
TEST(UnusedParameters, D10ARankThatUsesEverythingDoesNotRebuildAlone) {
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    {
      auto accumulate = model.no_sync();
      model(constant({1, 1}, group.rank() + 1), true).sum().backward();
    }
    model(constant({1, 1}, 4), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 1.5f);
    EXPECT_EQ(gradient_of(net->second), 4);
  });
}

TEST(UnusedParameters, D7AnUnusedParameterIsAnErrorThatNamesRankParameterAndRemedy) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group);
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1}), true).sum().backward();
    });
    EXPECT_THAT(text, HasSubstr("gave no gradient to second.weight, third.weight"));
    EXPECT_THAT(text, HasSubstr("find_unused_parameters(true)"));
  });
}

// Only rank 1 leaves a layer out: rank 0 waits for it and must learn of it.
TEST(UnusedParameters, D7TheOtherRanksLearnTheReason) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(1, 1), Linear(1, 1));
    DistributedDataParallel model(net, group, testing::one_each());
    const std::string text = message_of<std::exception>([&] {
      const torch::Tensor out = model(torch::ones({1, 1}));
      (group.rank() == 0 ? out : net[1]->as<Linear>()->forward(torch::ones({1, 1})))
          .sum()
          .backward();
    });
    const auto heard = [&](const std::string& reason) {
      return group.rank() == 1 ? reason : testing::as_heard(reason);
    };
    EXPECT_THAT(text, HasSubstr(heard("backward on rank 1 gave no gradient to")));
    EXPECT_THAT(text, HasSubstr(heard("0.weight")));
  });
}

TEST(UnusedParameters, D10DifferentGraphsPerRankEndEqual) {
  testing::run_ranks(2, [](ProcessGroup group) {
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

struct OwnHeadImpl : torch::nn::Module {
  explicit OwnHeadImpl(std::int64_t width) {
    fc1 = register_module("fc1", Linear(LinearOptions(1, 1).bias(false)));
    fc2 = register_module("fc2", Linear(LinearOptions(1, width).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(1));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(1);
  }
  torch::Tensor forward(const torch::Tensor& input) { return fc2(fc1(input)); }
  Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(OwnHead);

TEST(Ignored, D12EachRankKeepsWhatIsIgnored) {
  testing::run_ranks(2, [](ProcessGroup group) {
    OwnHead net(group.rank() + 1);
    net->norm->running_mean.fill_(group.rank());
    DistributedDataParallel model(net, group, Options().ignored({"fc2.weight", "norm.*"}));
    EXPECT_EQ(net->norm->running_mean.item<float>(), static_cast<float>(group.rank()));
    torch::optim::SGD optimizer({net->fc1->weight}, 0.01);
    for (int step = 0; step < 6; ++step) {
      net->zero_grad();
      model(constant({1, 1}, group.rank() + 1)).sum().backward();
      const float first = net->fc1->weight.item<float>();
      EXPECT_FLOAT_EQ(net->fc2->weight.grad().sum().item<float>(),
          first * static_cast<float>((group.rank() + 1) * (group.rank() + 1)))
          << "its own, not the average";
      EXPECT_EQ(net->fc1->weight.grad().item<float>(), (1 * 1 + 2 * 2) / 2.0f);
      optimizer.step();
    }
    expect_same_on_all_ranks(net->fc1->weight, group);
  });
}

TEST(Ignored, D12APatternThatFitsNothingIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    OwnHead net(1);
    EXPECT_THAT(message_of<std::exception>(
                    [&] { DistributedDataParallel(net, group, Options().ignored({"fc3.*"})); }),
        HasSubstr("to be ignored is fc3.*, but no parameter or buffer has such a name"));
  });
}

}  // namespace
}  // namespace lockstep
