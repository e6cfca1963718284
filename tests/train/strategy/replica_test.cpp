// What a rank trains, where no process is needed: float16's scaling and frozen batch norms.

#include "lockstep/train/strategy/replica.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "lockstep/comm/run_ranks.h"

#include "tests/train/random_batch.h"

namespace lockstep {
namespace {

constexpr double kRate = 0.1;

std::unique_ptr<Replica> replica_of(
    const TrainOptions& options, const Task& task, const ProcessGroup& world) {
  const Layout layout = plan_layout_in(options, world.size(), world.backend_name() == "threads");
  const RankGroups groups = make_rank_groups(world, layout);
  const auto places = layout.places > 1 ? cpu_places(layout.places) : std::vector<Place>();
  return make_replica(options, layout, task, groups, places);
}

nn::NamedTensors copy_of(const nn::NamedTensors& state) {
  nn::NamedTensors copy("Tensor");
  for (const auto& item : state) copy.insert(item.key(), item.value().detach().clone());
  return copy;
}

TrainOptions half_toy(Parallel way) {
  TrainOptions options;
  options.model = "toy";
  options.parallel = way;
  options.batch_size = 8;
  options.precision = Precision::k16Mixed;
  if (way == Parallel::kPp) options.pipeline.balance = Balance::kCount;
  return options;
}

const Task kToyTask{.image = {10}, .classes = 5};

// Overflow on one rank, or in the stage that only one rank has.
void expect_one_skipped_step(Parallel way) {
  run_ranks(2, [way](const ProcessGroup& world) {
    const auto replica = replica_of(half_toy(way), kToyTask, world);
    replica->set_training(true);
    const Batch good = testing::random_batch({8, 10});
    Batch bad = good;
    if (world.rank() == 0) bad.data = at::full({8, 10}, 1e30);
    const auto start = copy_of(replica->state());
    replica->backward(bad, {});
    replica->update(kRate);
    EXPECT_EQ(replica->skipped_steps(), 1);
    EXPECT_EQ(replica->loss_scale(), 32768);
    for (const auto& item : replica->state()) EXPECT_TRUE(item.value().equal(start[item.key()]));
    const torch::Tensor loss = replica->backward(good, {});
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    EXPECT_LT(loss.item<double>(), 10) << "the loss is that without the scale";
    replica->update(kRate);
    EXPECT_EQ(replica->skipped_steps(), 1);
    for (const auto& item : replica->state()) EXPECT_FALSE(item.value().equal(start[item.key()]));
    replica->backward(good, {});
    if (world.rank() == 0) replica->parameters().front().mutable_grad().fill_(INFINITY);
    replica->update(kRate);
    EXPECT_EQ(replica->skipped_steps(), 2) << "the other rank's own gradients are finite";
  });
}

TEST(Replica, ReplicasLeaveOutTheSameStepsG11) { expect_one_skipped_step(Parallel::kDdp); }

TEST(Replica, StagesLeaveOutTheSameStepsG11) { expect_one_skipped_step(Parallel::kPp); }

// Adam does not see how long gradients are, plain SGD with clipped ones does.
TEST(Replica, ClipsGradientsWithoutTheScale) {
  const Batch batch = testing::random_batch({8, 10});
  const auto trained = [&](Precision precision) {
    TrainOptions options = half_toy(Parallel::kSerial);
    options.precision = precision;
    options.optimizer = default_settings(OptimizerKind::kSgd);
    options.optimizer.clip_grad = 0.01;
    const auto replica = replica_of(options, kToyTask, ProcessGroup());
    replica->set_training(true);
    replica->backward(batch, {});
    replica->update(kRate);
    return copy_of(replica->state());
  };
  const auto half = trained(Precision::k16Mixed), full = trained(Precision::k32);
  for (const auto& item : full) {
    EXPECT_TRUE(at::allclose(half[item.key()], item.value(), 0, 1e-5)) << item.key();
  }
}

// In one process, as `dp` and `pp` compute in threads there.
class FrozenBatchNorms : public ::testing::TestWithParam<Parallel> {};

TEST_P(FrozenBatchNorms, KeepTheirStatistics) {
  TrainOptions options;
  options.model = "resnet18-cifar";
  options.freeze = {"conv1.*", "bn1.*", "layer1.*"};
  options.parallel = GetParam();
  options.batch_size = 4;
  if (GetParam() == Parallel::kPp) options.pipeline.balance = Balance::kCount;
  const auto replica = replica_of(options, {.image = {3, 32, 32}, .classes = 5}, ProcessGroup());
  const auto start = copy_of(replica->state());
  for (int epoch = 0; epoch < 2; ++epoch) {
    replica->set_training(true);
    replica->backward(testing::random_batch({4, 3, 32, 32}), {});
    replica->update(kRate);
    replica->set_training(false);
    replica->scores(testing::random_batch({4, 3, 32, 32}).data);
  }
  for (const auto& item : replica->state()) {
    const bool is_frozen = item.key().starts_with("conv1.") || item.key().starts_with("bn1.") ||
                           item.key().starts_with("layer1.");
    EXPECT_EQ(item.value().equal(start[item.key()]), is_frozen) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FrozenBatchNorms, ::testing::Values(Parallel::kSerial, Parallel::kDp, Parallel::kPp),
    [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace lockstep
