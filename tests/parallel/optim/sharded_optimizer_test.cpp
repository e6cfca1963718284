// Restated from PyTorch's test_zero_redundancy_optimizer.py: who owns what, what each rank keeps
// and refuses, parity with the plain optimizer bit for bit, and the state saved on some ranks and
// loaded on others (ZERO, W3).

#include "lockstep/parallel/optim/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

#include "tests/comm/group_factory.h"
#include "tests/parallel/optim/twin.h"
#include "tests/parallel/replica_checks.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/ops/stack.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;

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

// The largest first, to the rank that has least; of several such to the first.
TEST(Owners, AreTheRanksThatHaveLeast) {
  EXPECT_THAT(balanced_owners({{1, 2, 8, 4, 4}}, 2), ElementsAre(ElementsAre(1, 0, 0, 1, 1)));
  EXPECT_THAT(balanced_owners({{5, 5, 5}}, 3), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(balanced_owners({{0, 0}}, 2), ElementsAre(ElementsAre(0, 0)));
  EXPECT_THAT(balanced_owners({{3, 2}}, 4), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(balanced_owners({}, 4), ElementsAre());
  EXPECT_THROW(balanced_owners({{1}}, 0), InvalidArgument);
}

TEST(Owners, ZeroAGroupAddedLaterMovesNothing) {
  const auto before = balanced_owners({{9, 7, 5, 3}}, 3);
  const auto after = balanced_owners({{9, 7, 5, 3}, {10, 1, 1}}, 3);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_THAT(loads_of({{9, 7, 5, 3}, {10, 1, 1}}, 3), ElementsAre(10, 17, 9));
}

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
    expect_equal(plain, shared);
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

template <typename Make>
void expect_parity(Make make) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](const ProcessGroup& world) {
      Twin twin(world, make);
      for (int step = 0; step < 5; ++step)
        twin.step_alike(step, step == 2 ? 3 : SIZE_MAX);  // once a parameter has no gradient
    });
  }
}

template <typename Optimizer, typename Options>
auto making(const Options& options) {
  return [options](const std::vector<Tensor>& parameters) {
    return std::make_unique<Optimizer>(parameters, options);
  };
}

std::unique_ptr<torch::optim::Optimizer> with_two_groups(const std::vector<Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>(parameters.begin(), parameters.begin() + 3));
  groups.emplace_back(std::vector<Tensor>(parameters.begin() + 3, parameters.end()),
      std::make_unique<AdamWOptions>(AdamWOptions(0.5).weight_decay(0.3)));
  return std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.01));
}

// Adagrad makes its state at construction, for all parameters.
TEST(ShardedParity, W3OfEveryOptimizer) {
  using namespace torch::optim;
  expect_parity(making<SGD>(SGDOptions(0.1)));
  expect_parity(making<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)));
  expect_parity(making<Adam>(AdamOptions(0.01).weight_decay(0.1)));
  expect_parity(making<AdamW>(AdamWOptions(0.01).amsgrad(true)));
  expect_parity(making<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true)));
  expect_parity(making<Adagrad>(AdagradOptions(0.1)));
  expect_parity(making<nn::Adam>(AdamOptions(0.01)));
  expect_parity(with_two_groups);  // each keeps its options
}

TEST(ShardedParity, ZeroOptionsMayChangeBetweenSteps) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, with_two_groups);
    for (int step = 0; step < 3; ++step) {
      for (torch::optim::Optimizer* optimizer : twin.both()) {
        optimizer->param_groups()[1].options().set_lr(0.1 * (step + 1));
        static_cast<AdamWOptions&>(optimizer->param_groups()[0].options()).eps(1e-3 * (step + 1));
      }
      twin.step_alike(step);
    }
  });
}

TEST(ShardedParity, ZeroASchedulerOfLibTorchDrivesIt) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, making<torch::optim::Adam>(AdamOptions(0.1)));
    torch::optim::StepLR of_plain(*twin.plain, 2, 0.1), of_sharded(twin.sharded, 2, 0.1);
    for (int step = 0; step < 5; ++step) {
      twin.step_alike(step);
      of_plain.step();
      of_sharded.step();
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
    for (int step = 1; step < 4; ++step) twin.step_alike(step);
  });
}

TEST(ShardedParity, ParametersMayBeMovedBetweenSteps) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, making<torch::optim::Adam>(AdamOptions(0.1)));
    twin.step_alike(0);
    for (const Tensor& parameter : twin.sharded_parameters)
      EXPECT_GT(parameter.storage().nbytes(), parameter.nbytes()) << "is not beside others";
    twin.sharded_parameters[0].set_data(twin.sharded_parameters[0].clone());
    twin.step_alike(1);
    EXPECT_GT(twin.sharded_parameters[0].storage().nbytes(), twin.sharded_parameters[0].nbytes());
    for (const auto* parameters : {&twin.plain_parameters, &twin.sharded_parameters})
      (*parameters)[2].set_data((*parameters)[2].to(torch::kDouble));
    twin.step_alike(2);
    twin.step_alike(3);
  });
}

TEST(ShardedParity, WhatSharesItsMemoryOrHasGapsStaysWhereItIs) {
  const auto make = [] {
    const Tensor whole = wave({10}, 1), wide = wave({4, 4}, 2);
    const auto order = at::MemoryFormat::ChannelsLast;
    return std::vector<Tensor>{whole.narrow(0, 0, 4).requires_grad_(),
        whole.narrow(0, 4, 6).requires_grad_(), wide.slice(1, 0, 2).requires_grad_(),
        wave({2, 3, 4, 4}, 3).contiguous(order).requires_grad_()};
  };
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    const auto plain = make(), sharded = make();
    torch::optim::SGD reference(plain, SGDOptions(0.1));
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::SGD>(sharded, SGDOptions(0.1)), world);
    std::vector<const void*> before;
    for (const Tensor& parameter : sharded) before.push_back(parameter.const_data_ptr());
    for (int step = 0; step < 3; ++step) {
      set_gradients(plain, step);
      set_gradients(sharded, step);
      reference.step();
      optimizer.step();
      expect_equal(plain, sharded);
    }
    for (std::size_t stays = 0; stays < 3; ++stays)
      EXPECT_EQ(sharded[stays].const_data_ptr(), before[stays]) << stays;
    EXPECT_NE(sharded[3].const_data_ptr(), before[3]);
    EXPECT_TRUE(sharded[3].is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

// Two parameters that are tied by their memory stay so, and a view follows.
TEST(ShardedParity, WhatIsSeenByOthersStaysWhereItIs) {
  const auto make = [] {
    const Tensor first = wave({10}, 1), second = first.detach();
    return std::vector<Tensor>{first.requires_grad_(), second.requires_grad_(),
        wave({6}, 3).requires_grad_(), wave({8}, 4).requires_grad_()};
  };
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    const auto plain = make(), sharded = make();
    torch::optim::SGD reference(plain, SGDOptions(0.1));
    ShardedOptimizer optimizer(
        std::make_unique<torch::optim::SGD>(sharded, SGDOptions(0.1)), world);
    const Tensor view = sharded[2].detach();
    const void* const before = sharded[3].const_data_ptr();
    for (int step = 0; step < 3; ++step) {
      set_gradients(plain, step);
      set_gradients(sharded, step);
      reference.step();
      optimizer.step();
      EXPECT_TRUE(sharded[0].is_alias_of(sharded[1]));
      expect_equal({view}, {plain[2].detach()});
      expect_equal({sharded[3]}, {plain[3]});
    }
    EXPECT_NE(sharded[3].const_data_ptr(), before);
  });
}

TEST(ShardedParity, WhatSharesItsMemoryOnOneRankStaysOnAll) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    Twin twin(world, making<torch::optim::Adam>(AdamOptions(0.1)));
    Tensor& parameter = twin.sharded_parameters[0];
    const Tensor two = at::stack({parameter.detach(), parameter.detach()});
    if (world.rank() == 1) parameter.set_data(two[0]);
    const void* const before = parameter.const_data_ptr();
    for (int step = 0; step < 3; ++step) twin.step_alike(step);
    EXPECT_EQ(parameter.const_data_ptr(), before);
    EXPECT_TRUE(two[1].equal(some_parameters()[0])) << "its neighbour has changed";
  });
}

// The others then have other owners.
TEST(ShardedParity, GroupsMayBeTakenAway) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const auto make = [](const std::vector<Tensor>& parameters) {
      std::vector<OptimizerParamGroup> groups;
      groups.emplace_back(std::vector<Tensor>(parameters.begin(), parameters.begin() + 1));
      groups.emplace_back(std::vector<Tensor>(parameters.begin() + 1, parameters.end()));
      return std::make_unique<torch::optim::SGD>(groups, SGDOptions(0.1));
    };
    Twin twin(world, make);
    twin.step_alike(0);
    const auto owners = twin.sharded.owners()[1];
    for (torch::optim::Optimizer* optimizer : twin.both())
      optimizer->param_groups().erase(optimizer->param_groups().begin());
    ASSERT_NE(twin.sharded.owners()[0], owners);
    twin.step_alike(1);
    twin.step_alike(2);
  });
}

// Whoever owns it.
TEST(ShardedOptimizer, AGraphThatSavedAParameterNoticesTheStep) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    Twin twin(world, adam);
    for (int step = 0; step < 2; ++step) {
      std::vector<Tensor> saved;
      for (const Tensor& parameter : twin.sharded_parameters)
        saved.push_back((parameter * parameter).sum());
      twin.step(step);
      for (const Tensor& sum : saved) EXPECT_THROW(sum.backward(), c10::Error);
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
      expect_equal(a, b);
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
      twin.step_alike(3);
      EXPECT_EQ(twin.sharded.state().size(), own);
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
      for (int step = 3; step < 6; ++step) twin.step_alike(step);
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
    expect_equal(twin.plain_parameters, other.sharded_parameters);
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
