// The sharded optimizer equals the plain one step by step, bit for bit: W3, ZERO
// test_local_optimizer_parity, test_step, test_multiple_param_groups, test_lr_scheduler.

#include <gtest/gtest.h>
#include <string>

#include "tests/comm/group_factory.h"
#include "tests/parallel/optim/twin.h"
#include "tests/parallel/replica_checks.h"
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using torch::Tensor;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

template <typename Make>
void expect_parity(Make make) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](const ProcessGroup& world) {
      Twin twin(world, make);
      for (int step = 0; step < 5; ++step) {
        twin.step(step, step == 2 ? 3 : SIZE_MAX);  // once a parameter has no gradient
        EXPECT_TRUE(twin.parameters_are_equal()) << ranks << " ranks, step " << step;
      }
    });
  }
}

template <typename Optimizer, typename Options>
auto making(const Options& options) {
  return [options](const std::vector<Tensor>& parameters) {
    return std::make_unique<Optimizer>(parameters, options);
  };
}

TEST(ShardedParity, W3Sgd) { expect_parity(making<torch::optim::SGD>(SGDOptions(0.1))); }

TEST(ShardedParity, W3SgdWithNesterovMomentum) {
  expect_parity(
      making<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)));
}

TEST(ShardedParity, W3Adam) {
  expect_parity(making<torch::optim::Adam>(AdamOptions(0.01).weight_decay(0.1)));
}

TEST(ShardedParity, W3AdamW) {
  expect_parity(making<torch::optim::AdamW>(AdamWOptions(0.01).amsgrad(true)));
}

TEST(ShardedParity, W3RmsProp) {
  expect_parity(making<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true)));
}

// Adagrad makes its state at construction, for all parameters.
TEST(ShardedParity, W3Adagrad) {
  expect_parity(making<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1)));
}

TEST(ShardedParity, W3OurFusedAdam) { expect_parity(making<nn::Adam>(AdamOptions(0.01))); }

std::unique_ptr<torch::optim::Optimizer> with_two_groups(const std::vector<Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>(parameters.begin(), parameters.begin() + 3));
  groups.emplace_back(std::vector<Tensor>(parameters.begin() + 3, parameters.end()),
      std::make_unique<AdamWOptions>(AdamWOptions(0.5).weight_decay(0.3)));
  return std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.01));
}

TEST(ShardedParity, ZeroGroupsKeepTheirOptions) { expect_parity(with_two_groups); }

TEST(ShardedParity, ZeroOptionsMayChangeBetweenSteps) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, with_two_groups);
    for (int step = 0; step < 3; ++step) {
      for (torch::optim::Optimizer* optimizer : twin.both()) {
        optimizer->param_groups()[1].options().set_lr(0.1 * (step + 1));
        static_cast<AdamWOptions&>(optimizer->param_groups()[0].options()).eps(1e-3 * (step + 1));
      }
      twin.step(step);
      EXPECT_TRUE(twin.parameters_are_equal());
    }
  });
}

TEST(ShardedParity, ZeroASchedulerOfLibTorchDrivesIt) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, making<torch::optim::Adam>(AdamOptions(0.1)));
    torch::optim::StepLR of_plain(*twin.plain, 2, 0.1), of_sharded(twin.sharded, 2, 0.1);
    for (int step = 0; step < 5; ++step) {
      twin.step(step);
      of_plain.step();
      of_sharded.step();
      EXPECT_TRUE(twin.parameters_are_equal());
    }
    EXPECT_LT(twin.sharded.param_groups()[0].options().get_lr(), 0.01);
  });
}

TEST(ShardedParity, ZeroGroupsMayBeAdded) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, making<torch::optim::Adam>(AdamOptions(0.1)));
    twin.step(0);
    for (auto* parameters : {&twin.plain_parameters, &twin.sharded_parameters}) {
      parameters->push_back(wave({11, 3}, 50).requires_grad_());
    }
    twin.plain->add_param_group(OptimizerParamGroup({twin.plain_parameters.back()}));
    twin.sharded.add_param_group(OptimizerParamGroup({twin.sharded_parameters.back()}));
    for (int step = 1; step < 4; ++step) {
      twin.step(step);
      EXPECT_TRUE(twin.parameters_are_equal());
    }
  });
}

TEST(ShardedParity, ParametersOfSeveralTypes) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const auto mixed = [](std::vector<Tensor>& parameters) {
      for (std::size_t index = 0; index < parameters.size(); index += 2) {
        parameters[index] = parameters[index].detach().to(torch::kDouble).requires_grad_();
      }
    };
    std::vector<Tensor> a = some_parameters(), b = some_parameters();
    mixed(a);
    mixed(b);
    torch::optim::SGD plain(a, SGDOptions(0.1).momentum(0.9));
    ShardedOptimizer sharded(
        std::make_unique<torch::optim::SGD>(b, SGDOptions(0.1).momentum(0.9)), world);
    for (int step = 0; step < 3; ++step) {
      for (auto* parameters : {&a, &b}) {
        for (Tensor& parameter : *parameters) {
          parameter.mutable_grad() = at::full_like(parameter, 0.1 * (step + 1));
        }
      }
      plain.step();
      sharded.step();
      for (std::size_t index = 0; index < a.size(); ++index) EXPECT_TRUE(a[index].equal(b[index]));
    }
  });
}

struct Net : torch::nn::Module {
  Tensor forward(const Tensor& x) { return (x.mm(weight) + bias).square().sum(); }
  Tensor weight = register_parameter("weight", wave({4, 3}, 1));
  Tensor bias = register_parameter("bias", wave({3}, 2));
};

// As it is used: each rank has its own data, DDP averages, the sharded optimizer updates.
TEST(ShardedParity, W3UnderDistributedDataParallel) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    auto a = std::make_shared<Net>(), b = std::make_shared<Net>();
    DistributedDataParallel<std::shared_ptr<Net>> of_plain(a, world), of_sharded(b, world);
    torch::optim::Adam plain(a->parameters(), AdamOptions(0.01));
    ShardedOptimizer sharded(
        std::make_unique<torch::optim::Adam>(b->parameters(), AdamOptions(0.01)), world);
    for (int step = 0; step < 4; ++step) {
      const Tensor input = wave({2, 4}, 10 * step + world.rank());
      plain.zero_grad();
      of_plain(input).backward();
      plain.step();
      sharded.zero_grad();
      of_sharded(input).backward();
      sharded.step();
      EXPECT_TRUE(a->weight.equal(b->weight));
      EXPECT_TRUE(a->bias.equal(b->bias));
      testing::expect_same_on_all_ranks(b->weight, world);
    }
  });
}

}  // namespace
}  // namespace lockstep
