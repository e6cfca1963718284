// What a rank trains, where no process is needed: float16's scaling and frozen batch norms.

#include "lockstep/train/strategy/replica.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/random_batch.h"
#include <ATen/ops/full.h>

#include "lockstep/comm/process_group.h"

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

bool is_skipped(Replica& replica) { return replica.update(kRate).item<double>() != 0; }

// Overflow on one rank, or in the stage that only one rank has.
void expect_one_skipped_step(Parallel way) {
  run_ranks(2, [way](const ProcessGroup& world) {
    const auto replica = replica_of(half_toy(way), kToyTask, world);
    replica->set_training(true);
    const Batch good = testing::random_batch({8, 10});
    Batch bad = good;
    if (world.rank() == 0) bad.input() = at::full({8, 10}, 1e30);
    const auto start = copy_of(replica->state());
    replica->backward(bad, {}, 0);
    EXPECT_TRUE(is_skipped(*replica));
    EXPECT_EQ(replica->loss_scale(), 32768);
    for (const auto& item : replica->state()) EXPECT_TRUE(item.value().equal(start[item.key()]));
    const torch::Tensor loss = replica->backward(good, {}, 0);
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    EXPECT_LT(loss.item<double>(), 10) << "the loss is that without the scale";
    EXPECT_FALSE(is_skipped(*replica));
    for (const auto& item : replica->state()) EXPECT_FALSE(item.value().equal(start[item.key()]));
    replica->backward(good, {}, 0);
    if (world.rank() == 0) replica->parameters().front().mutable_grad().fill_(INFINITY);
    EXPECT_TRUE(is_skipped(*replica)) << "the other rank's own gradients are finite";
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
    replica->backward(batch, {}, 0);
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
    replica->backward(testing::random_batch({4, 3, 32, 32}), {}, 0);
    replica->update(kRate);
    replica->set_training(false);
    replica->scores(testing::random_batch({4, 3, 32, 32}));
  }
  for (const auto& item : replica->state()) {
    const bool is_frozen = item.key().starts_with("conv1.") || item.key().starts_with("bn1.") ||
                           item.key().starts_with("layer1.");
    EXPECT_EQ(item.value().equal(start[item.key()]), is_frozen) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FrozenBatchNorms,
    ::testing::Values(Parallel::kSerial, Parallel::kDp, Parallel::kPp),
    [](const auto& test) { return name_of(test.param); });

// What an optimizer step does with its parts and its learning rate.

constexpr std::int64_t kSamples = 12;

std::unique_ptr<Replica> toy_replica() {
  TrainOptions options;
  options.model = "toy";
  options.optimizer = default_settings(OptimizerKind::kSgd);
  options.optimizer.momentum = 0;
  const ProcessGroup alone;
  const Layout layout = plan_layout(options, 1);
  auto replica = make_replica(
      options, layout, {.image = {10}, .classes = 5}, make_rank_groups(alone, layout), {});
  replica->set_training(true);
  return replica;
}

Batch part_of(const Batch& batch, std::int64_t first, std::int64_t end) {
  return {batch.input().slice(0, first, end), batch.target().slice(0, first, end)};
}

std::vector<torch::Tensor> gradients_of(const Replica& replica) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : replica.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-6, 1e-7));
}

TEST(ReplicaUpdate, UsesTheRateOfItsStep) {
  const auto replica = toy_replica();
  for (const double rate : {0.5, 0.03}) {
    std::vector<torch::Tensor> before;
    for (const auto& parameter : replica->parameters())
      before.push_back(parameter.detach().clone());
    replica->backward(testing::random_batch({kSamples, 10}), {}, 0);
    const auto gradients = gradients_of(*replica);
    replica->update(rate);
    const auto after = replica->parameters();
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_GT(gradients[i].abs().max().item<double>(), 1e-3);
      expect_close(after[i].detach(), before[i] - rate * gradients[i]);
    }
  }
}

TEST(ReplicaUpdate, PartsOfAStepAddUpToTheWhole) {
  const Batch batch = testing::random_batch({kSamples, 10});
  const auto whole = toy_replica(), parts = toy_replica();
  const torch::Tensor loss_of_rest = whole->backward(part_of(batch, 7, kSamples), {}, 0);
  whole->backward(batch, {}, 0);
  for (int step = 0; step < 2; ++step) {  // the second step forgets the first
    parts->backward(part_of(batch, 0, 7), {7.0 / kSamples, 0, false}, step);
    const torch::Tensor loss =
        parts->backward(part_of(batch, 7, kSamples), {5.0 / kSamples, 1, true}, step);
    expect_close(loss, loss_of_rest);
  }
  const auto expected = gradients_of(*whole), actual = gradients_of(*parts);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(actual[i], expected[i]);
}

}  // namespace
}  // namespace lockstep
