// Ranks with unequal numbers of inputs: cases J1 to J5 of the conformance list, restated from
// PyTorch's distributed_test.py and test_join.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
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
using testing::local_pass;
using testing::make;
using testing::message_of;
using testing::one_each;
using testing::scalar_layer;
using testing::with_replicas;
using testing::with_static_graph;
using testing::with_unused;
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
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        local_pass(model, constant({1, 1}, 4));
        model.reduce_accumulated();
        EXPECT_EQ(net->weight.grad().item<float>(), step == 0 ? 4 : 2);
      }
    });
  });
}

void expect_equal_replicas(torch::nn::Module& net, const ProcessGroup& group) {
  for (const auto& parameter : net.parameters()) expect_same_on_all_ranks(parameter, group);
  for (const auto& buffer : net.buffers()) expect_same_on_all_ranks(buffer, group);
}

/// One line of the matrix J3.
struct Uneven {
  int early_ranks;
  int early_steps;
  int more_steps;
  int sync_every;
};

template <typename Make>
void expect_no_hang(const Uneven& row, const Options& options, Make make) {
  testing::run_ranks(3, [&](ProcessGroup group) {
    auto net = make();
    DistributedDataParallel model(net, group, options);
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    const bool early = group.rank() < row.early_ranks;
    const int steps = row.early_steps + (early ? 0 : row.more_steps);
    const auto pass = [&](int step) {
      model(constant({4, 2}, step + group.rank() + 1), group.rank()).pow(2).mean().backward();
    };
    model.join([&] {
      for (int step = 0; step < steps; ++step) {
        if ((step + 1) % row.sync_every != 0) {
          auto accumulate = model.no_sync();
          pass(step);
          continue;
        }
        pass(step);
        optimizer.step();
        optimizer.zero_grad();
      }
    });
    expect_equal_replicas(*net, group);
    // Afterwards all train together as before.
    optimizer.zero_grad();
    pass(0);
    for (const auto& parameter : net->parameters()) {
      if (parameter.grad().defined()) expect_same_on_all_ranks(parameter.grad(), group);
    }
  });
}

struct ChainImpl : torch::nn::Module {
  explicit ChainImpl(torch::nn::Sequential net) {
    layers = register_module("layers", std::move(net));
  }
  torch::Tensor forward(const torch::Tensor& input, int) { return layers->forward(input); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Chain);

Chain plain() { return Chain(torch::nn::Sequential(Linear(2, 9), Linear(9, 3))); }

Chain normed() {
  return Chain(torch::nn::Sequential(Linear(2, 9), torch::nn::BatchNorm1d(9), Linear(9, 3)));
}

/// Uses one of two tasks, another one per rank.
struct TasksImpl : torch::nn::Module {
  TasksImpl() {
    a = register_module("a", Linear(2, 3));
    b = register_module("b", Linear(2, 3));
  }
  torch::Tensor forward(const torch::Tensor& input, int rank) {
    return rank == 1 ? a(input) : b(input);
  }
  Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(Tasks);

const std::vector<Uneven> kMatrix = {
    {1, 0, 2, 1}, {1, 0, 3, 1}, {2, 0, 10, 1}, {1, 5, 2, 1}, {1, 5, 3, 2}, {2, 5, 10, 3}};

TEST(JoinMatrix, J3NobodyHangsAndAllModelsEndEqual) {
  for (const Uneven& row : kMatrix) {
    expect_no_hang(row, one_each(), plain);
    expect_no_hang(row, one_each(), normed);
    expect_no_hang(row, one_each().comm_hook(fp16_compress_hook), plain);
    expect_no_hang(row, with_unused(), make<Tasks>);
    // A rank that never trained could not show what it uses.
    if (row.early_steps > 0) expect_no_hang(row, with_static_graph(), make<Tasks>);
  }
}

// A rank that has ended still has the gradients of its last pass; they are no use of this one.
TEST(JoinMatrix, D6WhatOnlyAnEndedRankOnceUsedStaysUndefined) {
  with_replicas(2, make<Tasks>, with_unused(), [](Tasks& net, auto& model, auto& group) {
    model.join([&] {
      for (int step = 0; step <= group.rank(); ++step) {
        net->zero_grad();
        model(torch::ones({1, 2}), /*rank=*/step).sum().backward();
        EXPECT_EQ(net->b->weight.grad().defined(), step == 0);
        EXPECT_EQ(net->a->weight.grad().defined(), step == 1);
      }
    });
  });
}

TEST(JoinMatrix, D9ARankThatTrainsLateMustUseWhatTheOthersUsedIfTheGraphIsStatic) {
  with_replicas(2, make<Tasks>, with_static_graph(), [](auto&, auto& model, auto& group) {
    model.join([&] {
      if (group.rank() == 0) model(torch::ones({1, 2}), group.rank()).sum().backward();
    });
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 2}), group.rank()).sum().backward();
    });
    EXPECT_THAT(text, HasSubstr(testing::heard("the graph changed: a.", 1, group)));
    EXPECT_THAT(text, HasSubstr(testing::heard("of rank 1", 1, group)));
  });
}

TEST(JoinMatrix, J3WithPowerSgd) {
  testing::run_ranks(3, [](ProcessGroup group) {
    Linear net(LinearOptions(20, 20).bias(false));
    DistributedDataParallel model(net, group);
    model.register_comm_hook(PowerSgd(PowerSgdOptions().start_step(0)));
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    model.join([&] {
      for (int step = 0; step < 2 * group.rank(); ++step) {
        optimizer.zero_grad();
        model(constant({1, 20}, step)).sum().backward();
        optimizer.step();
      }
    });
    expect_same_on_all_ranks(net->weight, group);
  });
}

TEST(JoinMatrix, J3WithSparseGradients) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel model(net, group);
    const auto options = JoinOptions().divide_by_initial_world_size(false);
    model.join(
        [&] {
          for (int step = 0; step < 1 + 2 * group.rank(); ++step) {
            net->zero_grad();
            model(torch::tensor({std::int64_t{step}})).sum().backward();
            EXPECT_EQ(net->weight.grad().to_dense()[step][0].item<float>(), 1);
          }
        },
        options);
    expect_same_on_all_ranks(net->weight, group);
  });
}

TEST(JoinMatrix, J3TheLastToEndIsAuthoritative) {
  for (const int last : {0, 1, 2}) {
    testing::run_ranks(3, [&](ProcessGroup group) {
      torch::nn::BatchNorm1d net(1);
      DistributedDataParallel model(net, group);
      const bool is_last = group.rank() == last;
      model.join([&] {
        for (int step = 0; step < (is_last ? 3 : 1); ++step)
          model(constant({2, 1}, step)).sum().backward();
        const torch::NoGradGuard no_grad;
        net->weight.fill_(group.rank() + 10);
        net->running_mean.fill_(group.rank() + 20);
      });
      EXPECT_EQ(net->weight.item<float>(), static_cast<float>(last + 10));
      EXPECT_EQ(net->running_mean.item<float>(), static_cast<float>(last + 20));
    });
  }
}

// Buffers follow the first rank that still trains, not one that has ended.
TEST(JoinMatrix, J3BuffersFollowARankThatStillTrains) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::BatchNorm1d net(1);
    DistributedDataParallel model(net, group);
    model.join([&] {
      if (group.rank() == 0) return;
      net->running_mean.fill_(group.rank());
      model(torch::ones({2, 1}));
      EXPECT_FLOAT_EQ(net->running_mean.item<float>(), 1) << "rank 1's, nine tenths, and a tenth";
    });
  });
}

struct CountingImpl : torch::nn::Module {
  explicit CountingImpl(ProcessGroup world) : group(world) {
    layer = register_module("layer", Linear(2, 4));
  }
  torch::Tensor forward(const torch::Tensor& input) {  // another collective, as SyncBatchNorm
    group.all_reduce(torch::ones({3})).wait();
    return layer(input);
  }
  ProcessGroup group;
  Linear layer{nullptr};
};
TORCH_MODULE(Counting);

TEST(JoinMatrix, J4AllStopAtTheFirstEndIfAskedTo) {
  testing::run_ranks(3, [](ProcessGroup group) {
    Counting net(group);
    DistributedDataParallel model(net, group, one_each());
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    int steps = 0;
    const auto train = [&] {
      for (const int planned = group.rank() == 0 ? 10 : 5; steps < planned; ++steps) {
        optimizer.zero_grad();
        model(constant({1, 2}, group.rank())).sum().backward();
        optimizer.step();
      }
    };
    try {
      model.join(train, JoinOptions().throw_on_early_termination(true));
      ADD_FAILURE() << "nothing was said";
    } catch (const UnevenInputs& error) {
      EXPECT_THAT(error.what(), HasSubstr("no inputs are left on rank 1, 2"));
    }
    EXPECT_EQ(steps, 5);
    expect_equal_replicas(*net, group);
    model(constant({1, 2}, 1)).sum().backward();  // the group is as good as before
    expect_same_on_all_ranks(net->layer->weight.grad(), group);
  });
}

TEST(JoinMatrix, J4NothingIsThrownIfAllEndTogether) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Counting net(group);
    DistributedDataParallel model(net, group);
    EXPECT_NO_THROW(model.join(
        [&] {
          model(constant({1, 2}, 1)).sum().backward();
        },
        JoinOptions().throw_on_early_termination(true)));
  });
}

}  // namespace
}  // namespace lockstep
