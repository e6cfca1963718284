// Clipping in one process, and over ranks that have different parameters: O4 in two shards.

#include "lockstep/parallel/optim/clip_grad_norm.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/comm/group_factory.h"
#include "tests/parallel/optim/twin.h"
#include "tests/parallel/replica_checks.h"
#include "tests/support/message_of.h"
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;

Tensor parameter_with(const Tensor& gradient) {
  Tensor parameter = at::zeros(gradient.sizes(), torch::kFloat).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(ClipGradNorm, InOneProcessAllGradientsAreScaledTogether) {
  const Tensor a = parameter_with(torch::tensor({3.0, 4.0}, at::kDouble)),
               b = parameter_with(torch::tensor({12.0}, at::kDouble)), unused = at::zeros({1});
  EXPECT_NEAR(clip_grad_norm({a, b, unused}, 1), 13, 1e-12);
  EXPECT_NEAR(a.grad()[0].item<double>(), 0.2307692, 1e-7);
  EXPECT_NEAR(a.grad()[1].item<double>(), 0.3076923, 1e-7);
  EXPECT_NEAR(b.grad()[0].item<double>(), 0.9230769, 1e-7);
}

TEST(ClipGradNorm, InOneProcessSmallGradientsAreLeftAlone) {
  const Tensor a = parameter_with(torch::tensor({0.3, 0.4}, at::kDouble));
  EXPECT_NEAR(clip_grad_norm({a}, 1), 0.5, 1e-12);
  EXPECT_EQ(a.grad()[0].item<double>(), 0.3);
  EXPECT_EQ(clip_grad_norm({at::zeros({1})}, 1), 0);
}

TEST(ClipGradNorm, O4OverTwoShards) {
  testing::run_ranks(2, [](const ProcessGroup& shards) {
    const Tensor parameter =
        parameter_with(shards.rank() == 0 ? torch::tensor({3.0F, 4.0F}) : torch::tensor({12.0F}));
    EXPECT_DOUBLE_EQ(clip_grad_norm({parameter}, 1, shards, NonFiniteNorm::kThrow), 13);
    const Tensor expected =
        shards.rank() == 0 ? torch::tensor({0.2307692F, 0.3076923F}) : torch::tensor({0.9230769F});
    EXPECT_TRUE(parameter.grad().allclose(expected, 1e-6, 0));
  });
}

TEST(ClipGradNorm, ASmallerNormIsLeft) {
  testing::run_ranks(2, [](const ProcessGroup& shards) {
    const Tensor parameter = parameter_with(torch::tensor({3.0F, 4.0F}));
    EXPECT_DOUBLE_EQ(clip_grad_norm({parameter}, 8, shards), std::sqrt(50.0));
    EXPECT_TRUE(parameter.grad().equal(torch::tensor({3.0F, 4.0F})));
  });
}

// Parameters dealt out over ranks, against LibTorch's function over all of them.
TEST(ClipGradNorm, EqualsTheSerialOneOverAllParameters) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](const ProcessGroup& stages) {
      const auto all = some_parameters(), dealt = some_parameters();
      set_gradients(all, 1, 2);
      set_gradients(dealt, 1, 2);
      std::vector<Tensor> own;
      for (std::size_t index = 0; index < dealt.size(); ++index) {
        if (static_cast<int>(index) % ranks == stages.rank()) own.push_back(dealt[index]);
      }
      const double serial = torch::nn::utils::clip_grad_norm_(all, 0.5);
      const double norm = clip_grad_norm(own, 0.5, stages);
      EXPECT_NEAR(norm, serial, 1e-6 * serial);
      testing::expect_same_on_all_ranks(torch::full({1}, norm, torch::kDouble), stages);
      for (std::size_t index = 0; index < all.size(); ++index) {
        if (static_cast<int>(index) % ranks != stages.rank() || index == 2) continue;
        EXPECT_TRUE(dealt[index].grad().allclose(all[index].grad(), 1e-6, 0));
      }
    });
  }
}

// Two replicas of a pipeline of two stages: the norm is that of one replica.
TEST(ClipGradNorm, ReplicasAreNotCountedAgain) {
  testing::run_ranks(4, [](const ProcessGroup& world) {
    const int stage = world.rank() % 2, replica = world.rank() / 2;
    const ProcessGroup stages = world.split(replica, stage);
    const Tensor parameter =
        parameter_with(stage == 0 ? torch::tensor({3.0F, 4.0F}) : torch::tensor({12.0F}));
    EXPECT_DOUBLE_EQ(clip_grad_norm({parameter}, 1, stages), 13);
  });
}

TEST(ClipGradNorm, ATiedParameterCountsOnce) {
  const Tensor parameter = parameter_with(torch::tensor({3.0F, 4.0F}));
  EXPECT_DOUBLE_EQ(clip_grad_norm({parameter, parameter}, 1), 5);
  EXPECT_TRUE(parameter.grad().allclose(torch::tensor({0.6F, 0.8F})));
}

TEST(ClipGradNorm, ARankWithoutParametersTakesPart) {
  testing::run_ranks(2, [](const ProcessGroup& stages) {
    std::vector<Tensor> parameters;
    if (stages.rank() == 0) parameters = {parameter_with(torch::tensor({3.0F, 4.0F}))};
    EXPECT_DOUBLE_EQ(clip_grad_norm(parameters, 1, stages), 5);
  });
}

TEST(ClipGradNorm, SparseGradientsAreSummedBeforeTheyAreSquared) {
  const Tensor gradient =
      at::sparse_coo_tensor(torch::tensor({{1, 1}}), torch::tensor({1.0F, 2.0F}), {3});
  const Tensor parameter = parameter_with(gradient);
  EXPECT_DOUBLE_EQ(clip_grad_norm({parameter}, 1.5), 3);
  EXPECT_TRUE(parameter.grad().to_dense().allclose(torch::tensor({0.0F, 1.5F, 0.0F})));
}

// Half precision would overflow at 65504.
TEST(ClipGradNorm, HalfGradientsAreSquaredInDouble) {
  const Tensor parameter = at::zeros({2}, torch::kHalf).requires_grad_();
  parameter.mutable_grad() = torch::full({2}, 60000.0, torch::kHalf);
  EXPECT_NEAR(clip_grad_norm({parameter}, 1, ProcessGroup(), NonFiniteNorm::kThrow),
      60000 * std::sqrt(2.0), 100);
}

TEST(ClipGradNorm, ANormThatIsNoneIsThrownOnAllRanksBeforeAnyChange) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    testing::run_ranks(2, [&](const ProcessGroup& shards) {
      const Tensor parameter = parameter_with(torch::tensor({shards.rank() == 1 ? bad : 3.0F}));
      EXPECT_THROW(clip_grad_norm({parameter}, 1, shards, NonFiniteNorm::kThrow), DivergedError);
      if (shards.rank() == 0) {
        EXPECT_TRUE(parameter.grad().equal(torch::tensor({3.0F})));
      }
    });
  }
}

TEST(ClipGradNorm, ANormThatIsNoneMaySpread) {
  testing::run_ranks(2, [](const ProcessGroup& shards) {
    const Tensor parameter =
        parameter_with(torch::tensor({shards.rank() == 1 ? std::nanf("") : 3.0F}));
    EXPECT_TRUE(std::isnan(clip_grad_norm({parameter}, 1, shards)));
    EXPECT_TRUE(parameter.grad().isnan().all().item<bool>());
  });
}

TEST(ClipGradNorm, ABoundOfNothingIsRefused) {
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { clip_grad_norm({}, 0); }),
      AllOf(HasSubstr("must be positive"), HasSubstr("0")));
}

}  // namespace
}  // namespace lockstep
