// The reducer's report. Gradients that a caller keeps: as with the module alone, they keep their
// values in later passes, and the parameter's gradient stays the tensor that it is. Gradients that
// accumulate locally and are averaged later: case D5 of the conformance list.

#include "lockstep/parallel/ddp/reducer.h"

#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/place/memory_meter.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_gradients;
using testing::gradient_of;
using testing::local_pass;
using testing::one_each;
using testing::scalar_layer;
using testing::with_replicas;
using testing::with_unused;
using torch::nn::Linear;

TEST(ReducerReport, TheHiddenShareIsWhatWasNotExposed) {
  ReducerReport report;
  EXPECT_EQ(report.hidden_share(), 0) << "nothing was sent";
  report.communication_seconds = 2;
  report.exposed_seconds = 0.5;
  EXPECT_EQ(report.hidden_share(), 0.75);
  report.exposed_seconds = 3;
  EXPECT_EQ(report.hidden_share(), 0);
}

TEST(ReducerReport, OneLineTellsAll) {
  const ReducerReport report{4, 2, std::size_t{3} << 19, true, true, 0.04, 0.01};
  EXPECT_EQ(report.to_string(),
      "4 passes, 2 buckets, 1.5 MiB a pass, rebuilt, 10.0 ms of communication a pass, 75 % of it "
      "hidden behind backward");
  EXPECT_EQ(ReducerReport{}.to_string(), "0 passes, 0 buckets, 0.0 MiB a pass, as first cut");
}

TEST(ReducerReport, CountsPassesBucketsAndBytes) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(10, 20);
    DistributedDataParallel model(net, group, one_each());
    EXPECT_EQ(model.report().passes, 0);
    for (int step = 0; step < 3; ++step) model(torch::ones({1, 10})).sum().backward();
    const ReducerReport report = model.report();
    EXPECT_EQ(report.passes, 3);
    EXPECT_EQ(report.buckets, 2u);
    EXPECT_EQ(report.bytes, (208u + 32u) * 4u) << "on multiples of 64 bytes";
    EXPECT_TRUE(report.rebuilt);
    EXPECT_TRUE(report.graph_is_static);
    EXPECT_GT(report.communication_seconds, 0);
    EXPECT_GT(report.exposed_seconds, 0);
    EXPECT_EQ(report.exposed_seconds, model.communication_seconds());
    local_pass(model, torch::ones({1, 10}));
    EXPECT_EQ(model.report().passes, 3) << "without synchronisation there is no pass";
  });
}

TEST(ReducerReport, LeavesOutThePassesOfOthers) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(10, 20);
    DistributedDataParallel model(net, group);
    ReducerReport at_end;
    model.join([&] {
      for (int step = 0; step < 1 + 2 * group.rank(); ++step)
        model(torch::ones({1, 10})).sum().backward();
      at_end = model.report();
    });
    EXPECT_EQ(model.report().passes, group.rank() == 0 ? 1 : 3);
    EXPECT_EQ(model.report().exposed_seconds, at_end.exposed_seconds);
    EXPECT_EQ(model.report().communication_seconds, at_end.communication_seconds);
  });
}

// Of a net of 1 MB: its gradient before it is copied into its place, but not both sets of buckets.
TEST(Buckets, AreInMemoryOnceWhenTheyAreRebuilt) {
  testing::run_ranks(2, [](ProcessGroup group) {
    MemoryMeter meter;
    Linear net(512, 512);
    DistributedDataParallel model(net, group);
    const auto step = [&] { model(torch::ones({1, 512})).sum().backward(); };
    step();
    EXPECT_FALSE(model.report().rebuilt);
    net->zero_grad();
    const std::int64_t before = meter.total().live;
    meter.reset_peaks();
    step();
    EXPECT_EQ(model.report().rebuilt, group.sums_in_rank_order());
    EXPECT_LT(meter.total().peak - before, 3 << 19);
  });
}

// MKL rounds by the alignment of what it writes. A run that goes on from a snapshot has its first
// gradients in the first buckets.
TEST(PlacesOfGradients, DoNotChangeTheirBits) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(10, 10), torch::nn::Tanh(), Linear(10, 5));
    DistributedDataParallel model(net, group);
    const auto input = torch::arange(640, torch::kFloat).sin().view({64, 10});
    const auto pass = [&] {
      net->zero_grad();
      model(input).pow(2).sum().backward();
      std::vector<torch::Tensor> gradients;
      for (const auto& parameter : net->parameters()) {
        const torch::Tensor& gradient = parameter.grad();
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gradient.const_data_ptr()) % 64, 0u);
        gradients.push_back(gradient.clone());
      }
      return gradients;
    };
    const auto first = pass();
    for (int i = 0; i < 3; ++i) {
      const auto later = pass();
      for (std::size_t at = 0; at < first.size(); ++at)
        EXPECT_TRUE(torch::equal(later[at], first[at])) << "of parameter " << at;
    }
    EXPECT_EQ(model.report().rebuilt, group.sums_in_rank_order());
  });
}

constexpr int kPasses = 5;

// The average over two ranks is 10 times the pass and a half.
torch::Tensor input_of(int pass, const ProcessGroup& group) {
  return constant({1, 1}, 10 * pass + group.rank());
}
float average_of(int pass) { return 10.F * static_cast<float>(pass) + 0.5F; }

TEST(KeptGradients, AndViewsOfThemKeepTheirValuesAfterZeroGrad) {
  const std::function<torch::Tensor(const torch::Tensor&)> ways_to_keep[] = {
      [](const torch::Tensor& gradient) { return gradient; },
      [](const torch::Tensor& gradient) { return gradient.detach(); },
      [](const torch::Tensor& gradient) { return gradient.view(-1)[0]; }};
  for (const auto& view_of : ways_to_keep) {
    with_replicas(2, scalar_layer, {}, [&](Linear& net, auto& model, auto& group) {
      std::vector<torch::Tensor> kept;
      for (int pass = 0; pass < kPasses; ++pass) {
        net->zero_grad();
        model(input_of(pass, group)).sum().backward();
        EXPECT_EQ(gradient_of(net), average_of(pass));
        kept.push_back(view_of(net->weight.grad()));
      }
      for (int pass = 0; pass < kPasses; ++pass)
        EXPECT_EQ(kept[static_cast<std::size_t>(pass)].item<float>(), average_of(pass)) << pass;
    });
  }
}

// Those of parameters that no pass used since then have zeros or nothing, and those of a rank that
// has ended are overwritten, but not what was kept of them.
TEST(KeptGradients, OfARankThatHasEndedToo) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    torch::Tensor kept;
    model.join([&] {
      for (int pass = 0; pass < 3 + 2 * group.rank(); ++pass) {
        net->zero_grad();
        model(input_of(pass, group)).sum().backward();
        if (pass == 2) kept = net->weight.grad();
      }
      net->zero_grad();
    });
    EXPECT_EQ(kept.item<float>(), average_of(2));
  });
}

TEST(KeptGradients, AreTheParametersWhileItHasThem) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      model(input_of(1, group)).sum().backward();
      const torch::Tensor first = net->weight.grad();
      model(input_of(2, group)).sum().backward();
      EXPECT_TRUE(first.is_same(net->weight.grad()));
      EXPECT_EQ(first.item<float>(), average_of(1) + average_of(2));
    }
  });
}

TEST(KeptGradients, OfLocalPassesBecomeTheAverage) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      torch::Tensor local;
      {
        const auto accumulate = model.no_sync();
        model(input_of(1, group)).sum().backward();
        local = net->weight.grad();
      }
      model(input_of(2, group)).sum().backward();
      EXPECT_TRUE(local.is_same(net->weight.grad()));
      EXPECT_EQ(local.item<float>(), average_of(1) + average_of(2));
    }
  });
}

// What nobody keeps costs nothing: the places stay where they are once the buckets are rebuilt.
TEST(KeptGradients, MoveOutOfPlacesThatStay) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(scalar_layer(), scalar_layer());
    DistributedDataParallel model(net, group);
    std::vector<void*> seen;
    std::vector<torch::Tensor> kept;
    for (int pass = 0; pass < 6; ++pass) {
      net->zero_grad();
      model(input_of(pass, group)).sum().backward();
      seen.push_back(net->parameters()[0].grad().data_ptr());
      if (pass == 3) kept.push_back(net->parameters()[1].grad());
    }
    for (std::size_t pass = 2; pass < seen.size(); ++pass) EXPECT_EQ(seen[pass], seen[1]);
  });
}

TEST(ReduceAccumulated, D5AveragesTheSumOfTheLocalPasses) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(2, 3), Linear(3, 1));
    DistributedDataParallel model(net, group, one_each());
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      {
        auto accumulate = model.no_sync();
        for (int pass = 0; pass < 2; ++pass)
          model(constant({1, 2}, group.rank() + pass)).sum().backward();
      }
      model.reduce_accumulated();
      EXPECT_EQ(net[1]->as<Linear>()->bias.grad().item<float>(), 2);
      const torch::Tensor sum = net[1]->as<Linear>()->weight.detach().matmul(
          net[0]->as<Linear>()->weight.grad().new_full({3, 2}, 3.0));  // mean of 2 * rank + 1
      const torch::Tensor first = net[0]->as<Linear>()->weight.grad();
      EXPECT_TRUE(torch::allclose(first.sum(0), sum.flatten()));
      expect_same_gradients(*net, group);
    }
  });
}

// PyTorch's grads_same_across_ranks_with_no_sync: rank 0 uses layer 0, then 1; the others 2,
// then 3.
TEST(Accumulation, D5LayersThatDifferPerRankAndPassEndAlike) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(scalar_layer(), scalar_layer(), scalar_layer(), scalar_layer());
    DistributedDataParallel model(net, group, with_unused());
    const auto pass = [&](std::size_t number) {
      const std::size_t layer = number + (group.rank() == 0 ? 0 : 2);
      net[layer]->as<Linear>()->forward(constant({1, 1}, 3)).sum().backward();
    };
    for (int round = 0; round < 2; ++round) {
      net->zero_grad();
      {
        auto accumulate = model.no_sync();
        pass(0);
        EXPECT_EQ(net->parameters()[0].grad().defined(), group.rank() == 0);
      }
      pass(1);
      const std::vector<float> expected = {1, 1, 2, 2};
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(net->parameters()[i].grad().item<float>(), expected[i]);
    }
  });
}

TEST(ReduceAccumulated, MixesWithSynchronisedPasses) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      model(constant({1, 1}, group.rank())).sum().backward();  // 0.5
      local_pass(model, constant({1, 1}, 4 * group.rank()));
      model.reduce_accumulated();
      EXPECT_EQ(net->weight.grad().item<float>(), 2.5f);
    }
  });
}

TEST(ReduceAccumulated, AParameterWithoutGradientIsAnErrorThatNamesIt) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(scalar_layer(), scalar_layer());
    DistributedDataParallel model(net, group);
    {
      auto accumulate = model.no_sync();
      net[0]->as<Linear>()->forward(torch::ones({1, 1})).sum().backward();
    }
    EXPECT_THAT(
        testing::message_of<Error>([&] { model.reduce_accumulated(); }), HasSubstr("1.weight"));
  });
}

TEST(ReduceAccumulated, WhatNoRankUsedStaysUndefined) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(scalar_layer(), scalar_layer(), scalar_layer());
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    {
      auto accumulate = model.no_sync();
      net[static_cast<std::size_t>(group.rank())]
          ->as<Linear>()
          ->forward(constant({1, 1}, 2))
          .sum()
          .backward();
    }
    model.reduce_accumulated();
    EXPECT_EQ(net->parameters()[0].grad().item<float>(), 1);
    EXPECT_EQ(net->parameters()[1].grad().item<float>(), 1);
    EXPECT_FALSE(net->parameters()[2].grad().defined());
  });
}

TEST(GradientSync, ServesTensorsOfSeveralModules) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear first = scalar_layer(), second = scalar_layer();
    {
      const torch::NoGradGuard no_grad;
      first->weight.fill_(group.rank() + 2);
      second->weight.fill_(group.rank() + 5);
    }
    const torch::Tensor seen = constant({1}, group.rank() + 7);
    ReplicatedState state;
    state.add(*first, "first.");
    state.add(*second, "second.");
    state.parameters.emplace_back("again", first->weight);  // tied: one gradient
    state.buffers.emplace_back("seen", seen);
    GradientSync sync(state, group, Options());
    EXPECT_EQ(first->weight.item<float>(), 2);
    EXPECT_EQ(second->weight.item<float>(), 5);
    EXPECT_EQ(seen.item<float>(), 7);

    sync.reducer().set_synchronised(false);
    second(first(constant({1, 1}, group.rank()))).sum().backward();
    sync.reduce_accumulated();
    EXPECT_EQ(first->weight.grad().item<float>(), 2.5f);
    EXPECT_EQ(second->weight.grad().item<float>(), 1);
  });
}

// PyTorch broadcasts buffers before a forward if the one before it was synchronised: so they keep
// what the passes that accumulate have added.
class BuffersUnderNoSync : public ::testing::Test {
 protected:
  using Model = DistributedDataParallel<torch::nn::BatchNorm1d>;

  // Makes a pass on each rank's own mark, and returns whether the mark was rank 0's then.
  static bool follows(Model& model, const ProcessGroup& group) {
    model->running_mean.fill_(10 * (group.rank() + 1));
    model(testing::here(torch::tensor({-1.F, 1.F}).view({2, 1}))).pow(2).sum().backward();
    const auto mean = model->running_mean.item<float>();  // a tenth of the way to 0
    EXPECT_TRUE(mean == 9 || mean == 9.F * static_cast<float>(group.rank() + 1)) << mean;
    return mean == 9;
  }
};

TEST_F(BuffersUnderNoSync, FollowAfterASynchronisedForward) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Model model(torch::nn::BatchNorm1d(1), group);
    const bool is_first = group.rank() == 0;
    for (int step = 0; step < 2; ++step) {
      {
        auto accumulate = model.no_sync();
        EXPECT_TRUE(follows(model, group));
        EXPECT_EQ(follows(model, group), is_first);
      }
      EXPECT_EQ(follows(model, group), is_first) << "rank 1 would lose its first two parts";
    }
    EXPECT_TRUE(follows(model, group));
    EXPECT_TRUE(follows(model, group));
  });
}

TEST_F(BuffersUnderNoSync, FollowAfterWhatAccumulatedWasReduced) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Model model(torch::nn::BatchNorm1d(1), group);
    for (int step = 0; step < 2; ++step) {
      {
        auto accumulate = model.no_sync();
        EXPECT_TRUE(follows(model, group));
      }
      model.reduce_accumulated();
    }
  });
}

// The rank that ends first does not see the other's last pass: afterwards both do the same.
TEST_F(BuffersUnderNoSync, FollowAfterJoin) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Model model(torch::nn::BatchNorm1d(1), group);
    model.join([&] {
      EXPECT_TRUE(follows(model, group));
      if (group.rank() == 0) return;
      auto accumulate = model.no_sync();
      model(testing::here(torch::tensor({-1.F, 1.F}).view({2, 1}))).sum().backward();
    });
    EXPECT_TRUE(follows(model, group));
  });
}

TEST(GradientSync, NamesOfSeveralModulesCarryTheirPrefixes) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear layer(1 + group.rank(), 1);
    ReplicatedState state;
    state.add(*layer, "stage1.");
    EXPECT_THAT(testing::message_of<InvalidArgument>(
                    [&] { const GradientSync sync(state, group, Options()); }),
        HasSubstr("stage1.weight Float [1, 2] on rank 1"));
  });
}

}  // namespace
}  // namespace lockstep
