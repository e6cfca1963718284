// What dropout draws in a training step, and in which precision backward computes, for every way of
// spreading a model.

#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/train/random_batch.h"
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/strategy/replica_kinds.h"

namespace lockstep {
namespace {

// Half of 64 units are dropped: the loss tells which.
class DroppingImpl final : public nn::CloneByArguments<DroppingImpl, nn::ModelImpl> {
 public:
  DroppingImpl() {
    append_module("first", torch::nn::Linear(10, 64));
    append_module("drop", torch::nn::Dropout(0.5));
    append_module("second", torch::nn::Linear(64, 64));
    append_module("again", torch::nn::Dropout(0.5));
    append_module("last", torch::nn::Linear(64, 5));
  }
  static std::tuple<> arguments() { return {}; }
};

TrainOptions dropping_options(Parallel way) {
  TrainOptions options;
  options.parallel = way;
  options.seed = 7;
  options.pipeline.chunks = 2;
  return options;
}

// The same each time, also for ranks that are threads: LibTorch's generator is one for all.
PreparedModel dropping_model() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1);
  const std::shared_ptr<nn::ModelImpl> model = std::make_shared<DroppingImpl>();
  return {.model = nn::Model(model), .start = {}, .balance = {2, 3}};
}

// One rank's part of a way in so many processes, or alone with threads for what it is spread over.
std::unique_ptr<Replica> dropping_replica(const TrainOptions& options, const ProcessGroup& world) {
  const RankGroups replicas{world, world, ProcessGroup()}, stages{world, ProcessGroup(), world};
  const bool is_alone = world.size() == 1;
  switch (options.parallel) {
    case Parallel::kPp:
      if (!is_alone)
        return std::make_unique<StageReplica>(
            options, stages, dropping_model(), torch::Device(torch::kCPU));
      return std::make_unique<PipelineReplica>(options, replicas, dropping_model(), cpu_places(2));
    default:
      return std::make_unique<ModuleReplica>(options, replicas, dropping_model(), cpu_places(2));
  }
}

const Batch& batch() {
  static const Batch kMade = testing::random_batch({8, 10});
  return kMade;
}

double loss_of(Replica& replica, std::int64_t step, std::int64_t part = 0, bool is_last = true) {
  return replica.backward(batch(), {.share = 0.5, .number = part, .is_last = is_last}, step)
      .item<double>();
}

// The losses of two steps of two parts each, without an update in between.
std::vector<double> losses_of(Replica& replica) {
  replica.set_training(true);
  std::vector<double> losses;
  for (const std::int64_t step : {4, 5}) {
    losses.push_back(loss_of(replica, step, 0, false));
    losses.push_back(loss_of(replica, step, 1, true));
  }
  return losses;
}

class WhatAStepDraws : public ::testing::TestWithParam<Parallel> {
 protected:
  std::vector<double> losses(std::uint64_t common_seed) const {
    const auto replica = dropping_replica(dropping_options(GetParam()), ProcessGroup());
    batch();
    torch::manual_seed(common_seed);
    return losses_of(*replica);
  }
};

TEST_P(WhatAStepDraws, FollowsFromSeedAndStepAlone) {
  EXPECT_EQ(losses(1), losses(2));
  const auto replica = dropping_replica(dropping_options(GetParam()), ProcessGroup());
  replica->set_training(true);
  EXPECT_EQ(loss_of(*replica, 5, 1), losses(3).back()) << "as after a resume";
}

TEST_P(WhatAStepDraws, DiffersBetweenStepsPartsAndSeeds) {
  std::vector<double> all = losses(1);
  TrainOptions options = dropping_options(GetParam());
  options.seed = 8;
  const auto other = losses_of(*dropping_replica(options, ProcessGroup()));
  all.insert(all.end(), other.begin(), other.end());
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
}

TEST_P(WhatAStepDraws, LeavesTheCommonGeneratorAlone) {
  const auto replica = dropping_replica(dropping_options(GetParam()), ProcessGroup());
  replica->set_training(true);
  batch();
  torch::manual_seed(5);
  const auto expected = at::randn({8});
  torch::manual_seed(5);
  replica->backward(batch(), {}, 3);
  EXPECT_TRUE(at::randn({8}).equal(expected));
}

TEST_P(WhatAStepDraws, BackwardIsWithoutAutocast) {
  TrainOptions options = dropping_options(GetParam());
  options.precision = Precision::kBf16Mixed;
  const auto replica = dropping_replica(options, ProcessGroup());
  replica->set_training(true);
  int calls = 0, with_autocast = 0;
  replica->parameters().back().register_hook([&](const torch::Tensor&) {
    ++calls;
    with_autocast += at::autocast::is_autocast_enabled(at::kCPU) ? 1 : 0;
  });
  replica->backward(batch(), {}, 0);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(with_autocast, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, WhatAStepDraws,
    ::testing::Values(Parallel::kSerial, Parallel::kDdp, Parallel::kDp, Parallel::kPp),
    [](const auto& test) { return name_of(test.param); });

// What two ranks lose on the same batch. Ranks that are processes begin with the same state of
// LibTorch's generator: so do these, one after the other. Without a reduction no collective is
// made.
std::vector<double> losses_of_two_ranks(std::uint64_t common_seed) {
  std::vector<double> losses(2);
  batch();
  run_ranks(2, [&](const ProcessGroup& world) {
    const auto replica = dropping_replica(dropping_options(Parallel::kDdp), world);
    replica->set_training(true);
    for (int rank = 0; rank < 2; ++rank) {
      world.barrier().wait();
      if (rank != world.rank()) continue;
      torch::manual_seed(common_seed);
      losses[static_cast<std::size_t>(rank)] = loss_of(*replica, 4, 0, false);
    }
    world.barrier().wait();
  });
  return losses;
}

TEST(WhatRanksDraw, DiffersOnTheSameBatch) {
  const auto losses = losses_of_two_ranks(1);
  EXPECT_NE(losses[0], losses[1]);
}

TEST(WhatRanksDraw, RepeatsAmongThreads) {
  EXPECT_EQ(losses_of_two_ranks(1), losses_of_two_ranks(2));
}

// Stages on ranks drop what stages in threads of one process drop.
TEST(WhatRanksDraw, IsThatOfAPipelineInOneProcess) {
  const auto together =
      losses_of(*dropping_replica(dropping_options(Parallel::kPp), ProcessGroup()));
  run_ranks(2, [&](const ProcessGroup& world) {
    const auto losses = losses_of(*dropping_replica(dropping_options(Parallel::kPp), world));
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], together[i], 1e-6) << i;
  });
}

}  // namespace
}  // namespace lockstep
