// Saving, loading and gathering of the state: W3 (save on some ranks, load on others), ZERO
// test_collect_shards, test_state_dict.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

#include "tests/comm/group_factory.h"
#include "tests/parallel/optim/twin.h"
#include "tests/parallel/replica_checks.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using torch::optim::AdamParamState;

std::string saved(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(torch::optim::Optimizer& optimizer, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), testing::this_device());
  optimizer.load(archive);
}

const AdamParamState& state_of(const torch::optim::Optimizer& optimizer, std::size_t index) {
  const Tensor& parameter = optimizer.param_groups()[0].params()[index];
  return static_cast<const AdamParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
}

void expect_same_state(const torch::optim::Optimizer& a, const torch::optim::Optimizer& b) {
  ASSERT_EQ(a.state().size(), b.state().size());
  for (std::size_t index = 0; index < a.param_groups()[0].params().size(); ++index) {
    EXPECT_EQ(state_of(a, index).step(), state_of(b, index).step());
    EXPECT_TRUE(state_of(a, index).exp_avg().equal(state_of(b, index).exp_avg()));
    EXPECT_TRUE(state_of(a, index).exp_avg_sq().equal(state_of(b, index).exp_avg_sq()));
  }
}

TEST(ShardedState, ZeroConsolidatedStateIsThatOfThePlainOptimizer) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](const ProcessGroup& world) {
      const int to = ranks - 1;
      Twin twin(world, adam);
      for (int step = 0; step < 3; ++step) twin.step(step);
      const std::size_t own = twin.sharded.state().size();
      twin.sharded.consolidate_state(to);
      if (world.rank() == to) {
        expect_same_state(twin.sharded, *twin.plain);
      } else {
        EXPECT_EQ(twin.sharded.state().size(), own);
      }
      twin.step(3);
      EXPECT_EQ(twin.sharded.state().size(), own);
      EXPECT_TRUE(twin.parameters_are_equal());
    });
  }
}

TEST(ShardedState, ParametersWithoutStateStayWithout) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, adam);
    twin.step(0, 1);
    twin.sharded.consolidate_state(0);
    if (world.rank() == 0) {
      EXPECT_EQ(twin.sharded.state().size(), 5U);
    }
  });
}

// The receiver owns nothing: it learns of the state's type from what it is sent.
TEST(ShardedState, ConsolidatedOnARankThatOwnsNothing) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    const Tensor parameter = wave({4}, 1).requires_grad_();
    ShardedOptimizer optimizer(adam({parameter}), world);
    parameter.mutable_grad() = wave({4}, 2);
    optimizer.step();
    optimizer.consolidate_state(2);
    EXPECT_EQ(optimizer.state().size(), world.rank() == 1 ? 0U : 1U);
    if (world.rank() == 2) {
      EXPECT_EQ(state_of(optimizer, 0).step(), 1);
    }
  });
}

std::string whole_file_after(int steps, int ranks, std::vector<Tensor>& parameters) {
  std::string file;
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    Twin twin(world, adam);
    twin.sharded.param_groups()[0].options().set_lr(0.02);
    for (int step = 0; step < steps; ++step) twin.step(step);
    twin.sharded.consolidate_state(0);
    if (world.rank() != 0) return;
    file = saved(twin.sharded);
    parameters = twin.sharded_parameters;
  });
  return file;
}

void copy_into(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  const torch::NoGradGuard no_gradients;
  for (std::size_t index = 0; index < to.size(); ++index) to[index].copy_(from[index]);
}

TEST(ShardedState, W3SavedOnTwoContinuesPlainAndOnOneThreeAndFour) {
  std::vector<Tensor> parameters;
  const std::string file = whole_file_after(3, 2, parameters);
  for (const int ranks : {1, 3, 4}) {
    testing::run_ranks(ranks, [&](const ProcessGroup& world) {
      Twin twin(world, adam);
      copy_into(twin.plain_parameters, parameters);
      copy_into(twin.sharded_parameters, parameters);
      load(*twin.plain, file);
      load(twin.sharded, file);
      EXPECT_EQ(twin.sharded.param_groups()[0].options().get_lr(), 0.02);
      EXPECT_EQ(twin.plain->state().size(), parameters.size());
      EXPECT_LT(twin.sharded.state().size() * static_cast<std::size_t>(ranks), 2 * 6U + 6U);
      for (int step = 3; step < 6; ++step) {
        twin.step(step);
        EXPECT_TRUE(twin.parameters_are_equal());
      }
    });
  }
}

TEST(ShardedState, WhatAPlainOptimizerSavedIsLoaded) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, adam);
    for (int step = 0; step < 2; ++step) twin.step(step);
    const std::string file = saved(*twin.plain);
    Twin other(world, adam);
    copy_into(other.sharded_parameters, twin.plain_parameters);
    load(other.sharded, file);
    set_gradients(twin.plain_parameters, 2);
    set_gradients(other.sharded_parameters, 2);
    twin.plain->step();
    other.sharded.step();
    for (std::size_t index = 0; index < twin.plain_parameters.size(); ++index) {
      EXPECT_TRUE(twin.plain_parameters[index].equal(other.sharded_parameters[index]));
    }
  });
}

TEST(ShardedState, OptimizersWithoutStateHaveNothingToGather) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, [](const std::vector<Tensor>& parameters) {
      return std::make_unique<torch::optim::SGD>(parameters, 0.1);
    });
    twin.step(0);
    twin.sharded.consolidate_state(1);
    EXPECT_TRUE(twin.sharded.state().empty());
  });
}

TEST(ShardedState, AReceiverThatIsNoRankIsRefused) {
  ShardedOptimizer optimizer(adam(some_parameters()), ProcessGroup());
  EXPECT_THAT(testing::message_of<std::exception>([&] { optimizer.consolidate_state(1); }),
      HasSubstr("there is no rank 1; the ranks are 0 to 0"));
}

}  // namespace
}  // namespace lockstep
