// Ranks with unequal numbers of inputs: cases J1, J2 and J5 of the conformance list, restated from
// PyTorch's distributed_test.py and test_join.py.

#include "lockstep/parallel/ddp/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
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
using testing::message_of;
using torch::nn::Linear;
using torch::nn::LinearOptions;

std::vector<float> uneven_gradients(
    const ProcessGroup& group, const JoinOptions& options, const CommHook& hook) {
  Linear net(LinearOptions(5, 5).bias(false));
  DistributedDataParallel model(net, group, Options().comm_hook(hook));
  std::vector<float> seen;
  const int steps = group.rank() == 0 ? 3 : 5;
  model.join(
      [&] {
        for (int step = 0; step < steps; ++step) {
          model(constant({1, 5}, 50)).sum().backward();
          EXPECT_EQ(net->weight.grad().min().item<float>(), net->weight.grad().max().item<float>());
          seen.push_back(net->weight.grad()[0][0].item<float>());
          net->zero_grad();
        }
      },
      options);
  return seen;
}

std::vector<float> pytorchs(const std::string& name, int count) {
  const auto values = testing::expected_numbers("ddp.txt", name);
  return {values.begin(), values.begin() + count};
}

TEST(Join, J1GradientsAreDividedByTheInitialOrByTheActiveRanks) {
  for (const CommHook& hook : {CommHook(nullptr), CommHook(all_reduce_hook)}) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      const int steps = group.rank() == 0 ? 3 : 5;
      const JoinOptions by_active = JoinOptions().divide_by_initial_world_size(false);
      EXPECT_EQ(uneven_gradients(group, {}, hook), pytorchs("UnevenByInitial", steps));
      EXPECT_EQ(uneven_gradients(group, by_active, hook), pytorchs("UnevenByActive", steps));
    });
  }
}

TEST(Join, J1WithFourRanks) {
  testing::run_ranks(4, [](ProcessGroup group) {
    const auto by_initial = uneven_gradients(group, {}, nullptr);
    const auto by_active =
        uneven_gradients(group, JoinOptions().divide_by_initial_world_size(false), nullptr);
    EXPECT_EQ(by_initial.back(), group.rank() == 0 ? 50.0f : 37.5f);
    EXPECT_EQ(by_active.back(), 50);
  });
}

TEST(Join, J2EqualsSerialTraining) {
  for (const int size : {2, 3}) {
    testing::run_ranks(size, [](ProcessGroup group) {
      const auto train = [](auto& model, Linear& net, double rate, int steps) {
        torch::optim::SGD optimizer(net->parameters(), rate);
        const torch::Tensor input = torch::linspace(0, 1, 30).view({3, 10});
        for (int step = 0; step < steps; ++step) {
          optimizer.zero_grad();
          model(input).sum().backward();
          optimizer.step();
        }
      };
      const auto make = [] {
        Linear net(LinearOptions(10, 10).bias(false));
        const torch::NoGradGuard no_grad;
        net->weight.copy_(torch::linspace(-1, 1, 100).view({10, 10}));
        return net;
      };
      Linear serial = make(), net = make();
      train(serial, serial, 0.03, group.size() * (group.size() + 1));
      DistributedDataParallel model(net, group);
      model.join([&] { train(model, net, 0.03 * group.size(), 2 * (group.rank() + 1)); });
      EXPECT_TRUE(torch::allclose(net->weight, serial->weight, 1e-5, 1e-5));
      expect_same_on_all_ranks(net->weight, group);
    });
  }
}

TEST(Join, J5CollectivesAreShadowed) {
  const std::vector<std::vector<float>> totals = {{3}, {6, 7}, {9, 11, 12}, {12, 15, 17, 18}};
  for (const int size : {1, 2, 3, 4}) {
    testing::run_ranks(size, [&](ProcessGroup group) {
      Join join(group);
      const auto all_reduce = join.add("all_reduce",
          [&](const Join::Participants&) { group.all_reduce(torch::zeros({1})).wait(); });
      float total = 0;
      for (int step = 0; step < 3 + group.rank(); ++step) {
        join.announce(all_reduce);
        const torch::Tensor one = torch::ones({1});
        group.all_reduce(one).wait();
        total += one.item<float>();
      }
      EXPECT_EQ(join.finish(), size - 1);
      const auto& expected = totals[static_cast<std::size_t>(size) - 1];
      EXPECT_EQ(total, expected[static_cast<std::size_t>(group.rank())]);
    });
  }
}

TEST(Join, J5OtherCollectivesOfTheBodyAreShadowedToo) {
  testing::run_ranks(3, [](ProcessGroup group) {
    Linear net(2, 1);
    DistributedDataParallel model(net, group);
    float losses = 0;
    model.join([&](Join& join) {
      const auto loss = join.add(
          "loss", [&](const Join::Participants&) { group.all_reduce(torch::zeros({1})).wait(); });
      for (int step = 0; step <= group.rank(); ++step) {
        model(torch::ones({1, 2})).sum().backward();
        const auto active = join.announce(loss);
        EXPECT_EQ(static_cast<int>(active.size()), 3 - step);
        const torch::Tensor sum = torch::ones({1});
        group.all_reduce(sum).wait();
        losses += sum.item<float>();
      }
    });
    EXPECT_EQ(losses, std::vector<float>({3, 5, 6})[static_cast<std::size_t>(group.rank())]);
  });
}

TEST(Join, RanksThatDoDifferentThingsAreTold) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Join join(group);
    const auto a = join.add("first", [](const Join::Participants&) {});
    const auto b = join.add("second", [](const Join::Participants&) {});
    EXPECT_THAT(message_of<std::exception>([&] { join.announce(group.rank() == 0 ? a : b); }),
        HasSubstr("rank 0 announces first and rank 1 announces second"));
    EXPECT_THROW(join.announce(2), InvalidArgument);
  });
}

TEST(Join, AnExceptionOfTheBodyPassesThrough) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(2, 1);
    DistributedDataParallel model(net, group);
    EXPECT_THROW(model.join([] { throw std::domain_error("body"); }), std::domain_error);
    model(torch::ones({1, 2})).sum().backward();  // joins no more
    expect_same_on_all_ranks(net->weight.grad(), group);
  });
}

TEST(Join, D5AccumulatedGradientsAreShadowedToo) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group);
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        {
          auto accumulate = model.no_sync();
          model(constant({1, 1}, 4)).sum().backward();
        }
        model.reduce_accumulated();
        EXPECT_EQ(net->weight.grad().item<float>(), step == 0 ? 4 : 2);
      }
    });
  });
}

}  // namespace
}  // namespace lockstep
