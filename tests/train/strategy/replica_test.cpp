// What a rank trains, where no process is needed: float16's scaling, frozen batch norms, what
// dropout draws in a step, the precision of backward, how gradients are averaged, and the cost of
// layers.

#include "lockstep/train/strategy/replica.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/task/classification.h"

namespace lockstep {
namespace {

constexpr double kRate = 0.1;

// Of these sizes with five classes: the same one each time.
Batch random_batch(const std::vector<std::int64_t>& sizes) {
  torch::manual_seed(3);
  return {at::randn(sizes), at::randint(5, {sizes.front()}, torch::kLong)};
}

std::unique_ptr<Replica> replica_of(
    const TrainOptions& options, const SampleForm& form, const ProcessGroup& world) {
  const Layout layout = plan_layout_in(options, world.size(), world.backend_name() == "threads");
  const RankGroups groups = make_rank_groups(world, layout);
  const auto places = layout.places > 1 ? cpu_places(layout.places) : std::vector<Place>();
  return make_replica(options, layout, form, groups, places);
}

nn::NamedTensors copy_of(const nn::NamedTensors& state) {
  nn::NamedTensors copy("Tensor");
  for (const auto& item : state) copy.insert(item.key(), item.value().detach().clone());
  return copy;
}

TrainOptions toy_by(Parallel way) {
  TrainOptions options;
  options.model = "toy";
  options.parallel = way;
  options.batch_size = 8;
  if (way == Parallel::kPp || way == Parallel::kMp) options.pipeline.balance = Balance::kCount;
  return options;
}

TrainOptions half_toy(Parallel way) {
  TrainOptions options = toy_by(way);
  options.precision = Precision::k16Mixed;
  return options;
}

const SampleForm kToyTask{.image = {10}, .outputs = 5};

bool is_skipped(Replica& replica) { return replica.update(kRate).item<double>() != 0; }

// Overflow on one rank, or in the stage that only one rank has.
void expect_one_skipped_step(Parallel way) {
  run_ranks(2, [way](const ProcessGroup& world) {
    const auto replica = replica_of(half_toy(way), kToyTask, world);
    replica->set_training(true);
    const Batch good = random_batch({8, 10});
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
  const Batch batch = random_batch({8, 10});
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
  const auto replica = replica_of(options, {.image = {3, 32, 32}, .outputs = 5}, ProcessGroup());
  const auto start = copy_of(replica->state());
  for (int epoch = 0; epoch < 2; ++epoch) {
    replica->set_training(true);
    replica->backward(random_batch({4, 3, 32, 32}), {}, 0);
    replica->update(kRate);
    replica->set_training(false);
    replica->output(random_batch({4, 3, 32, 32}));
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
  auto replica = replica_of(options, kToyTask, ProcessGroup());
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
    replica->backward(random_batch({kSamples, 10}), {}, 0);
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
  const Batch batch = random_batch({kSamples, 10});
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
  return {.model = nn::Model(model),
      .task = std::make_shared<Classification>(),
      .start = {},
      .balance = {2, 3}};
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
  static const Batch kMade = random_batch({8, 10});
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

TrainOptions toy_with(const std::string& hook) {
  TrainOptions options = toy_by(Parallel::kDdp);
  options.gradients.comm_hook = parse_comm_hook(hook);
  return options;
}

// Of two ranks with other samples each.
std::vector<torch::Tensor> averaged(const std::string& hook) {
  std::vector<torch::Tensor> gradients(2);
  const Batch batch = random_batch({16, 10});
  run_ranks(2, [&](const ProcessGroup& world) {
    const auto replica = replica_of(toy_with(hook), kToyTask, world);
    replica->set_training(true);
    const std::int64_t first = 8 * world.rank();
    replica->backward(part_of(batch, first, first + 8), {}, 0);
    std::vector<torch::Tensor> flat;
    for (const auto& parameter : replica->parameters()) flat.push_back(parameter.grad().flatten());
    gradients[static_cast<std::size_t>(world.rank())] = at::cat(flat);
  });
  return gradients;
}

TEST(DdpOptions, TheHookReachesTheReducer) {
  const auto exact = averaged("none");
  ASSERT_TRUE(exact[0].equal(exact[1]));
  const double most = exact[0].abs().max().item<double>();
  for (const auto& [hook, tolerance] : {std::pair("bf16", 1.0 / 128), std::pair("fp16", 1.0 / 1024),
           std::pair("powersgd:1:0", 1.0)}) {
    const auto sent = averaged(hook);
    EXPECT_TRUE(sent[0].equal(sent[1])) << hook << ": the ranks differ";
    EXPECT_FALSE(sent[0].equal(exact[0])) << hook << " changed nothing";
    EXPECT_TRUE(at::allclose(sent[0], exact[0], 0, tolerance * most)) << hook;
  }
  EXPECT_TRUE(averaged("powersgd:1:1")[0].equal(exact[0])) << "the first step is exact";
}

TEST(DdpOptions, TheBucketIsAsLargeAsAskedInMebibytes) {
  TrainOptions options = toy_with("none");
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).bucket_bytes(),
      DistributedDataParallelOptions().bucket_bytes());
  options.gradients.bucket_mb = 0.5;
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).bucket_bytes(), 512 * 1024);
  EXPECT_EQ(ddp_options(options, nn::GradScaler()).first_bucket_bytes(),
      DistributedDataParallelOptions().first_bucket_bytes());
}

TEST(ChainCosts, AreOfAModelThatIsWholeInOnePlace) {
  for (const Parallel way :
      {Parallel::kSerial, Parallel::kDdp, Parallel::kDp, Parallel::kMp, Parallel::kPp}) {
    const auto replica = replica_of(toy_by(way), kToyTask, ProcessGroup());
    const auto chain = replica->chain_costs(random_batch({8, 10}).input());
    const bool is_whole = way == Parallel::kSerial || way == Parallel::kDdp;
    EXPECT_EQ(chain.size(), is_whole ? 4U : 0U) << name_of(way);
    if (!is_whole) continue;
    EXPECT_EQ(chain[1].name, "net1");
    EXPECT_GT(chain[1].forward, 0);
    EXPECT_EQ(chain[1].output_bytes, 8 * 10 * 4);
    EXPECT_EQ(chain[3].parameter_bytes, (std::vector<std::int64_t>{5 * 10 * 4, 5 * 4}));
  }
}

// The gradients of the last step stay the same tensors: views of buckets.
TEST(ChainCosts, LeaveTheModelItsGradientsAndTheRandomNumbersAlone) {
  TrainOptions options = toy_by(Parallel::kDdp);
  options.model = "resnet18-cifar";
  const auto replica = replica_of(options, {.image = {3, 32, 32}, .outputs = 5}, ProcessGroup());
  const Batch batch = random_batch({4, 3, 32, 32});
  replica->set_training(true);
  replica->backward(batch, {}, 0);
  const auto state = copy_of(replica->state());
  const auto values = gradients_of(*replica);
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : replica->parameters())
    gradients.push_back(parameter.grad());
  torch::manual_seed(7);
  const torch::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  EXPECT_FALSE(replica->chain_costs(batch.input()).empty());
  EXPECT_TRUE(at::rand({5}).equal(expected));
  for (const auto& item : replica->state())
    EXPECT_TRUE(item.value().equal(state[item.key()])) << item.key();
  const auto after = replica->parameters();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(after[i].grad().is_same(gradients[i]));
    EXPECT_TRUE(after[i].grad().equal(values[i]));
  }
}

std::vector<std::int64_t> activations_of(Replica& replica, const torch::Tensor& images) {
  std::vector<std::int64_t> bytes;
  for (const LayerCosts& layer : replica.chain_costs(images))
    bytes.push_back(layer.activation_bytes);
  return bytes;
}

// In training a batch norm keeps its statistics for backward, in evaluation it does not.
TEST(ChainCosts, AreMeasuredInTheModesOfTraining) {
  TrainOptions options = toy_by(Parallel::kSerial);
  options.model = "resnet18-cifar";
  const SampleForm form{.image = {3, 32, 32}, .outputs = 5};
  const auto replica = replica_of(options, form, ProcessGroup());
  const Batch batch = random_batch({4, 3, 32, 32});
  const torch::Tensor& images = batch.input();
  replica->set_training(true);
  const auto training = activations_of(*replica, images);
  replica->set_training(false);
  const torch::Tensor scores = replica->output(batch);
  EXPECT_EQ(activations_of(*replica, images), training);
  EXPECT_TRUE(replica->output(batch).equal(scores)) << "it is in evaluation again";
  options.freeze = {"bn1.*"};
  EXPECT_NE(activations_of(*replica_of(options, form, ProcessGroup()), images), training);
}

// The types of a step: the layers behind the first take bfloat16 and give it.
TEST(ChainCosts, AreOfTheOptionsPrecision) {
  TrainOptions options = toy_by(Parallel::kSerial);
  options.precision = Precision::kBf16Mixed;
  const auto replica = replica_of(options, kToyTask, ProcessGroup());
  const auto chain = replica->chain_costs(random_batch({8, 10}).input());
  EXPECT_EQ(chain.at(1).output_bytes, 8 * 10 * 2);
  EXPECT_EQ(chain.at(1).parameter_bytes.front(), 10 * 10 * 4) << "the weights are float";
}

TEST(ChainCosts, HaveNoGradientsOfFrozenLayers) {
  TrainOptions options = toy_by(Parallel::kSerial);
  options.freeze = {"net1.*"};
  const auto replica = replica_of(options, kToyTask, ProcessGroup());
  const auto chain = replica->chain_costs(random_batch({8, 10}).input());
  EXPECT_EQ(chain.at(1).backward, 0);
  EXPECT_EQ(chain.at(2).backward, 0) << "nothing before it is trained";
  EXPECT_GT(chain.at(3).backward_weight, 0);
}

// Remembers where its inputs were.
class WhereaboutsImpl final : public nn::CloneByArguments<WhereaboutsImpl, nn::ModelImpl> {
 public:
  static std::tuple<> arguments() { return {}; }
  torch::Tensor forward(torch::Tensor input) override {
    device = input.device();
    return input;
  }

  std::optional<torch::Device> device;
};

// A batch takes a device's time and memory, not the host's.
TEST(Rehearsal, IsWhereTheModelWillBe) {
  const auto net = std::make_shared<WhereaboutsImpl>();
  nn::Model model(std::shared_ptr<nn::ModelImpl>{net});
  const SampleForm form{.image = {}, .outputs = 4, .inputs = {{"ids", {4}, torch::kLong}}};
  rehearse(TrainOptions(), form, Classification(), model, {}, {{3, "a batch"}}, torch::kMeta);
  EXPECT_EQ(net->device, torch::Device(torch::kMeta));
}

}  // namespace
}  // namespace lockstep
