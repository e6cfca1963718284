// What the layers of a rank's model cost, and that measuring it leaves the training alone.

#include "lockstep/train/profile/step_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/train/random_batch.h"
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const torch::Tensor kImages = at::zeros({2, 3});

std::vector<LayerCosts> no_chain(const torch::Tensor& /*images*/) { return {}; }

// A group of one: rank 0 of a run without a launcher.
TEST(StepProfiler, MeasuresTenStepsAfterThree) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 20; ++step) {
    profiler.begin_step();
    EXPECT_EQ(SpanRecorder::is_on(), step >= 3 && step < 13) << step;
    profiler.end_step(kImages);
    EXPECT_FALSE(SpanRecorder::is_on());
  }
  const auto files = profiler.finish(no_chain);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 10);
  EXPECT_TRUE(files->profile.ranks[0].chain.empty());
  EXPECT_GT(files->profile.peak().value_or(0), 1e8);
}

// The last batch of an epoch may be smaller.
TEST(StepProfiler, MeasuresTheChainWithTheLargestBatch) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (const int samples : {9, 9, 9, 2, 4, 3}) {
    profiler.begin_step();
    profiler.end_step(at::zeros({samples, 3}));
  }
  int measurements = 0;
  const auto files = profiler.finish([&](const torch::Tensor& images) {
    ++measurements;
    EXPECT_EQ(images.size(0), 4);
    return std::vector<LayerCosts>{{.name = "only", .forward = 1}};
  });
  EXPECT_EQ(measurements, 1);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).batch, 4);
  EXPECT_EQ(files->profile.ranks[0].chain.at(0).name, "only");
}

TEST(StepProfiler, HasNothingOfARunThatOnlyWarmedUp) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 3; ++step) {
    profiler.begin_step();
    profiler.end_step(kImages);
  }
  EXPECT_FALSE(profiler.finish(no_chain).has_value());
}

// A step of many parts that a signal ends.
TEST(StepProfiler, LeavesOutAStepThatWasAbandoned) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 5; ++step) {
    profiler.begin_step();
    if (step < 4) profiler.end_step(kImages);
  }
  const auto files = profiler.finish(no_chain);
  EXPECT_FALSE(SpanRecorder::is_on());
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 1);
}

TEST(ProfileOfAnAccelerator, GivesNoLayerTheWaitForLibTorchsThread) {
  SpanLane main{.thread = "main", .number = 1, .is_main = true},
      engine{.thread = "pt_autograd_0", .number = 2};
  main.spans = {{.name = "backward", .activity = Activity::kBackward, .begin = 10, .end = 90},
      {.name = "step 4", .begin = 0, .end = 100}};
  engine.spans = {
      {.name = "AddmmBackward0", .activity = Activity::kGradientNode, .begin = 20, .end = 50}};
  const RankProfile profile = profile_of({main, engine});
  ASSERT_EQ(profile.layers.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward, 30e-6);
  EXPECT_DOUBLE_EQ(profile.lanes.at(0).of(StepPhase::kBackward), 80e-6);
}

// The steps of the profile are longer than those of the training.
TEST(ProfileOfAnAccelerator, HasTheTimeOfAStepThatIsNotWaitedFor) {
  const RunProfile run{.precision = "float32",
      .ranks = {{.steps = 10, .step = 100, .unwaited_step = 25, .flops = 2e9}}};
  EXPECT_THAT(profile_text(run), HasSubstr("without that a step takes 25.00 ms"));
  EXPECT_THAT(arithmetic_text(run), HasSubstr("80.0 GFLOP/s"));
  const std::string text = profile_json(run), written = "\"unwaited_step_ms\":25.0";
  EXPECT_EQ(read_profile(text, "profile.json").ranks.at(0).unwaited_step, 25);
  ASSERT_THAT(text, HasSubstr(written));
  const std::string without_time =
      std::string(text).replace(text.find(written), written.size(), "\"unwaited_step_ms\":0.0");
  EXPECT_THROW(read_profile(without_time, "profile.json"), DataError);
}

std::unique_ptr<Replica> replica_of(const TrainOptions& options, const Task& task) {
  const ProcessGroup alone;
  const Layout layout = plan_layout_in(options, 1, false);
  const auto places = layout.places > 1 ? cpu_places(layout.places) : std::vector<Place>();
  return make_replica(options, layout, task, make_rank_groups(alone, layout), places);
}

TrainOptions toy_by(Parallel way) {
  TrainOptions options;
  options.model = "toy";
  options.parallel = way;
  options.batch_size = 8;
  if (way == Parallel::kPp || way == Parallel::kMp) options.pipeline.balance = Balance::kCount;
  return options;
}

const Task kToyTask{.image = {10}, .classes = 5};

std::vector<torch::Tensor> gradients_of(const Replica& replica) {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : replica.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

TEST(ChainCosts, AreOfAModelThatIsWholeInOnePlace) {
  for (const Parallel way :
      {Parallel::kSerial, Parallel::kDdp, Parallel::kDp, Parallel::kMp, Parallel::kPp}) {
    const auto replica = replica_of(toy_by(way), kToyTask);
    const auto chain = replica->chain_costs(testing::random_batch({8, 10}).input());
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
  const auto replica = replica_of(options, {.image = {3, 32, 32}, .classes = 5});
  const Batch batch = testing::random_batch({4, 3, 32, 32});
  replica->set_training(true);
  replica->backward(batch, {}, 0);
  std::vector<torch::Tensor> state, values;
  for (const auto& item : replica->state()) state.push_back(item.value().detach().clone());
  const auto gradients = gradients_of(*replica);
  for (const torch::Tensor& gradient : gradients) values.push_back(gradient.clone());
  torch::manual_seed(7);
  const torch::Tensor expected = at::rand({5});
  torch::manual_seed(7);
  EXPECT_FALSE(replica->chain_costs(batch.input()).empty());
  EXPECT_TRUE(at::rand({5}).equal(expected));
  auto next = state.begin();
  for (const auto& item : replica->state()) EXPECT_TRUE(item.value().equal(*next++)) << item.key();
  const auto after = gradients_of(*replica);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(after[i].is_same(gradients[i]));
    EXPECT_TRUE(after[i].equal(values[i]));
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
  const Task task{.image = {3, 32, 32}, .classes = 5};
  const auto replica = replica_of(options, task);
  const Batch batch = testing::random_batch({4, 3, 32, 32});
  const torch::Tensor& images = batch.input();
  replica->set_training(true);
  const auto training = activations_of(*replica, images);
  replica->set_training(false);
  const torch::Tensor scores = replica->scores(batch);
  EXPECT_EQ(activations_of(*replica, images), training);
  EXPECT_TRUE(replica->scores(batch).equal(scores)) << "it is in evaluation again";
  options.freeze = {"bn1.*"};
  EXPECT_NE(activations_of(*replica_of(options, task), images), training);
}

// The types of a step: the layers behind the first take bfloat16 and give it.
TEST(ChainCosts, AreOfTheOptionsPrecision) {
  TrainOptions options = toy_by(Parallel::kSerial);
  options.precision = Precision::kBf16Mixed;
  const auto replica = replica_of(options, kToyTask);
  const auto chain = replica->chain_costs(testing::random_batch({8, 10}).input());
  EXPECT_EQ(chain.at(1).output_bytes, 8 * 10 * 2);
  EXPECT_EQ(chain.at(1).parameter_bytes.front(), 10 * 10 * 4) << "the weights are float";
}

TEST(ChainCosts, HaveNoGradientsOfFrozenLayers) {
  TrainOptions options = toy_by(Parallel::kSerial);
  options.freeze = {"net1.*"};
  const auto replica = replica_of(options, kToyTask);
  const auto chain = replica->chain_costs(testing::random_batch({8, 10}).input());
  EXPECT_EQ(chain.at(1).backward, 0);
  EXPECT_EQ(chain.at(2).backward, 0) << "nothing before it is trained";
  EXPECT_GT(chain.at(3).backward_weight, 0);
}

// The net computes, and its chain is a function around it.
struct WithoutChain : nn::ModelImpl {
  torch::Tensor forward(torch::Tensor images) override { return images * weight; }
  nn::Layers layers() const override {
    nn::Layers whole;
    whole.insert("net", nn::layer_of([](const torch::Tensor& images) { return images; }));
    return whole;
  }
  torch::Tensor weight = register_parameter("weight", at::rand({10}));
};

struct TiedPair : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(a).matmul(b); }
  torch::Tensor a = register_parameter("a", at::rand({10, 10}));
  torch::Tensor b = register_parameter("b", a);
};

struct TiedChain : nn::ModelImpl {
  TiedChain() {
    append("one", register_module("one", pair));
    append("two", register_module("two", std::make_shared<TiedPair>()));
    pair->register_parameter("c", pair->a);
  }
  std::shared_ptr<TiedPair> pair = std::make_shared<TiedPair>();
};

TEST(ChainCosts, OfTiedWeightsAreOfEachLayerAndCountThemOnce) {
  const std::shared_ptr<nn::ModelImpl> net = std::make_shared<TiedChain>();
  const auto chain = chain_costs(nn::Model(net), at::rand({2, 10}));
  ASSERT_EQ(chain.size(), 2U);
  for (const LayerCosts& layer : chain)
    EXPECT_EQ(layer.parameter_bytes, std::vector<std::int64_t>{400}) << layer.name;
}

TEST(ChainCosts, OfANetThatIsNoChainAreOneLayers) {
  const std::shared_ptr<nn::ModelImpl> net = std::make_shared<WithoutChain>();
  const auto chain = chain_costs(nn::Model(net), at::rand({2, 10}));
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_EQ(chain[0].name, "net");
  EXPECT_GT(chain[0].backward_weight, 0);
  EXPECT_EQ(chain[0].parameter_bytes, std::vector<std::int64_t>{40});
}

}  // namespace
}  // namespace lockstep
