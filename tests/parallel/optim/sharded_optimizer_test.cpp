// Who owns what: ZERO test_sharding, test_add_param_group (PyTorch's
// test_zero_redundancy_optimizer.py).
// What each rank keeps and does, and what is refused: ZERO test_constructor, test_sharding,
// test_step_with_closure, test_zero_grad.

#include "lockstep/parallel/optim/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/group_factory.h"
#include "tests/parallel/optim/twin.h"
#include "tests/parallel/replica_checks.h"
#include "tests/support/message_of.h"
#include <torch/optim/adagrad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

std::vector<std::int64_t> loads_of(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks) {
  const auto owners = balanced_owners(elements, ranks);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  for (std::size_t group = 0; group < elements.size(); ++group) {
    for (std::size_t index = 0; index < elements[group].size(); ++index) {
      loads.at(static_cast<std::size_t>(owners[group][index])) += elements[group][index];
    }
  }
  return loads;
}

// Sizes 9, 7, 5 and 3, each as often as there are ranks: every rank gets one of each.
TEST(Owners, ZeroShardingIsEven) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<std::int64_t> elements;
    for (const std::int64_t size : {9, 7, 5, 3}) {
      elements.insert(elements.end(), static_cast<std::size_t>(ranks), size);
    }
    EXPECT_THAT(loads_of({elements}, ranks), ::testing::Each(24));
  }
}

TEST(Owners, LargestFirstToWhoHasLeast) {
  EXPECT_THAT(balanced_owners({{1, 2, 8, 4, 4}}, 2), ElementsAre(ElementsAre(1, 0, 0, 1, 1)));
}

TEST(Owners, TiesGoToTheFirst) {
  EXPECT_THAT(balanced_owners({{5, 5, 5}}, 3), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(balanced_owners({{0, 0}}, 2), ElementsAre(ElementsAre(0, 0)));
}

TEST(Owners, ZeroAGroupAddedLaterMovesNothing) {
  const auto before = balanced_owners({{9, 7, 5, 3}}, 3);
  const auto after = balanced_owners({{9, 7, 5, 3}, {10, 1, 1}}, 3);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_THAT(loads_of({{9, 7, 5, 3}, {10, 1, 1}}, 3), ElementsAre(10, 17, 9));
}

TEST(Owners, MoreRanksThanParameters) {
  EXPECT_THAT(balanced_owners({{3, 2}}, 4), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(balanced_owners({}, 4), ElementsAre());
}

TEST(Owners, NoRanksAreRefused) { EXPECT_THROW(balanced_owners({{1}}, 0), InvalidArgument); }

void expect_own_state_only(ShardedOptimizer& optimizer, const ProcessGroup& world) {
  const auto owners = optimizer.owners();
  std::size_t own = 0;
  for (std::size_t index = 0; index < owners[0].size(); ++index) {
    const Tensor& parameter = optimizer.param_groups()[0].params()[index];
    const bool is_own = owners[0][index] == world.rank();
    EXPECT_EQ(optimizer.state().count(parameter.unsafeGetTensorImpl()), is_own ? 1U : 0U);
    own += is_own ? 1 : 0;
  }
  EXPECT_EQ(optimizer.state().size(), own);
}

TEST(ShardedOptimizer, StateIsOfTheOwnShareOnly) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, adam);
    EXPECT_TRUE(twin.sharded.state().empty());
    twin.step(0);
    expect_own_state_only(twin.sharded, world);
    EXPECT_EQ(twin.plain->state().size(), twin.plain_parameters.size());
  });
}

TEST(ShardedOptimizer, StateMadeAtConstructionIsSharedOutAtOnce) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::Adagrad>(some_parameters(), 0.1), world);
    expect_own_state_only(optimizer, world);
  });
}

// As a module with tied weights lists them.
TEST(ShardedOptimizer, ATiedParameterHasOneOwnerAndIsUpdatedOnce) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const auto plain = some_parameters(), shared = some_parameters();
    auto listed = shared;
    listed.insert(listed.begin() + 1, {shared[0], shared[2]});
    const auto reference = adam(plain);
    ShardedOptimizer optimizer(adam(listed), world);
    EXPECT_EQ(optimizer.owners()[0].size(), shared.size());
    set_gradients(plain, 0);
    set_gradients(shared, 0);
    reference->step();
    optimizer.step();
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(shared[i])) << i;
    expect_own_state_only(optimizer, world);
  });
}

TEST(ShardedOptimizer, AParameterInTwoGroupsIsRefused) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const auto parameters = some_parameters();
    auto optimizer = adam(parameters);
    optimizer->add_param_group(torch::optim::OptimizerParamGroup({parameters[1]}));
    EXPECT_THROW(ShardedOptimizer(std::move(optimizer), world), InvalidArgument);
  });
}

TEST(ShardedOptimizer, AComplexParameterIsRefusedByName) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    auto parameters = some_parameters();
    parameters[1] = torch::ones({2}, torch::kComplexFloat).set_requires_grad(true);
    const auto message =
        testing::message_of<InvalidArgument>([&] { ShardedOptimizer(adam(parameters), world); });
    EXPECT_THAT(message, ::testing::HasSubstr("group 0 parameter 1 is of ComplexFloat"));
  });
}

// Two of four ranks own nothing.
TEST(ShardedOptimizer, MoreRanksThanParameters) {
  testing::run_ranks(4, [](const ProcessGroup& world) {
    const Tensor a = wave({3}, 1).requires_grad_(), b = wave({2}, 2).requires_grad_();
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::SGD>(std::vector<Tensor>{a, b}, 1.0), world);
    a.mutable_grad() = at::full({3}, 0.5);
    b.mutable_grad() = at::full({2}, 0.25);
    optimizer.step();
    EXPECT_TRUE(a.equal(wave({3}, 1) - 0.5));
    EXPECT_TRUE(b.equal(wave({2}, 2) - 0.25));
  });
}

TEST(ShardedOptimizer, OnlyTheOwnersGradientDecides) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const Tensor a = at::full({2}, 1.0).requires_grad_(), b = at::full({2}, 1.0).requires_grad_();
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::SGD>(std::vector<Tensor>{a, b}, 1.0), world);
    a.mutable_grad() = at::full({2}, 1.0 + world.rank());
    b.mutable_grad() = at::full({2}, 1.0 + world.rank());
    optimizer.step();
    EXPECT_TRUE(a.equal(at::full({2}, 0.0)));   // rank 0's
    EXPECT_TRUE(b.equal(at::full({2}, -1.0)));  // rank 1's
  });
}

TEST(ShardedOptimizer, ZeroGradReachesAllParameters) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, adam);
    twin.step(0);
    twin.sharded.zero_grad();
    for (const Tensor& parameter : twin.sharded_parameters) {
      EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

TEST(ShardedOptimizer, ZeroTheClosureRunsOnceOnEveryRankWithGradients) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    const Tensor parameter = at::full({2}, 3.0).requires_grad_();
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::SGD>(std::vector<Tensor>{parameter}, 0.5), world);
    int calls = 0;
    const torch::NoGradGuard the_callers_mode;
    const Tensor loss = optimizer.step([&] {
      ++calls;
      Tensor value = parameter.square().sum();
      value.backward();
      return value;
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(loss.item<float>(), 18);
    EXPECT_TRUE(parameter.equal(at::full({2}, 0.0)));
    EXPECT_FALSE(optimizer.step().defined());
  });
}

/// Fails in its step.
struct Failing : torch::optim::SGD {
  using torch::optim::SGD::SGD;
  Tensor step(LossClosure /*closure*/ = nullptr) override { throw std::domain_error("no step"); }
};

TEST(ShardedOptimizer, AFailedStepLeavesGroupsAndState) {
  ShardedOptimizer optimizer(std::make_unique<Failing>(some_parameters(), 0.1), ProcessGroup());
  EXPECT_THROW(optimizer.step(), std::domain_error);
  EXPECT_EQ(optimizer.param_groups()[0].params().size(), some_parameters().size());
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.1);
}

TEST(ShardedOptimizer, LbfgsIsRefusedWithTheReason) {
  EXPECT_THAT(testing::message_of<std::exception>([] {
    ShardedOptimizer(std::make_unique<torch::optim::LBFGS>(some_parameters(), 1.0), ProcessGroup());
  }),
      AllOf(HasSubstr("LBFGS"), HasSubstr("all parameters together"), HasSubstr("unsharded")));
  EXPECT_THAT(
      testing::message_of<std::exception>([] { ShardedOptimizer(nullptr, ProcessGroup()); }),
      HasSubstr("there is no optimizer"));
}

TEST(ShardedOptimizer, OtherParametersOnARankAreRefusedOnAll) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    auto parameters = some_parameters();
    if (world.rank() == 1) parameters[2] = wave({3, 8}, 2).requires_grad_();
    EXPECT_THAT(
        testing::message_of<std::exception>([&] { ShardedOptimizer(adam(parameters), world); }),
        AllOf(HasSubstr("group 0 parameter 2"), HasSubstr("[3, 7]"), HasSubstr("[3, 8]")));
  });
}

TEST(ShardedOptimizer, AnotherGroupOnARankIsRefusedOnAll) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    ShardedOptimizer optimizer(adam(some_parameters()), world);
    const std::int64_t size = 3 + world.rank();
    optimizer.add_param_group(
        torch::optim::OptimizerParamGroup({wave({size}, 1).requires_grad_()}));
    EXPECT_THAT(testing::message_of<std::exception>([&] { optimizer.step(); }),
        HasSubstr("group 1 parameter 0 Float [3]"));
  });
}

}  // namespace
}  // namespace lockstep
