// The loop over the training data, on one rank.

#include "lockstep/train/epoch_loop.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/train/trainer_parts.h"
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::TrainerParts;

// Lets training go on until a test ends it, and notes what it is asked.
class Observer final : public StepObserver {
 public:
  explicit Observer(const TrainRun& run) : run_(run) {}
  // Ends it after a step.
  Observer(const TrainRun& run, std::int64_t step, Course end = Course::kEnds) : Observer(run) {
    after = [this, step, end] {
      if (run_.state.step == step) now = end;
    };
  }
  Course course() const override { return now; }
  Course after_part() override {
    on_part();
    return now;
  }
  bool may_undo_step() const override { return may_undo; }
  void before_step() override { before(); }
  Course after_step(bool epoch_is_over) override {
    epoch_ends.push_back(epoch_is_over);
    after();
    return now;
  }
  void save_step(bool is_last) override {
    (is_last ? last_saves : other_saves).push_back(run_.state.step);
  }

  Course now = Course::kGoesOn;
  bool may_undo = false;
  std::function<void()> on_part = [] {}, before = [] {}, after = [] {};
  std::vector<bool> epoch_ends;
  std::vector<std::int64_t> last_saves, other_saves;

 private:
  const TrainRun& run_;
};

using EpochLoopTest = TrainerParts;

TEST_F(EpochLoopTest, PassesOnceOverTheData) {
  TrainRun run = begin(4);
  Observer never(run);
  const auto before = run.replica->parameters().front().detach().clone();
  const EpochSummary epoch = EpochLoop(run, never).pass();
  EXPECT_EQ(epoch.epoch, 1);
  EXPECT_EQ(epoch.samples, 4 * 128);
  EXPECT_GT(epoch.train_loss, 0);
  EXPECT_EQ(run.state.step, 4);
  EXPECT_EQ(run.state.position, (EpochPosition{1, 4 * 128, 4 * 128}));
  EXPECT_FALSE(run.replica->parameters().front().equal(before));
  EXPECT_THAT(never.epoch_ends, ElementsAre(false, false, false, true));
  EXPECT_THAT(never.other_saves, ElementsAre(1, 2, 3)) << "the epoch itself is saved by others";
}

TEST_F(EpochLoopTest, GoesOnWithinAnEpochWhereItEnded) {
  TrainRun whole = begin(5);
  Observer never(whole);
  const EpochSummary at_once = EpochLoop(whole, never).pass();
  TrainOptions options = testing::toy_options(folder_, 5);
  options.output += "-2";
  TrainRun parts = begin(options);
  Observer second(parts, 2);
  EXPECT_EQ(EpochLoop(parts, second).pass().samples, 2 * 128);
  EXPECT_THAT(second.last_saves, ElementsAre(2));
  Observer later(parts);
  const EpochSummary rest = EpochLoop(parts, later).pass();
  EXPECT_EQ(rest.samples, at_once.samples);
  EXPECT_NEAR(rest.train_loss, at_once.train_loss, 1e-12);
  for (const auto& item : whole.replica->state())
    EXPECT_TRUE(item.value().equal(parts.replica->state()[item.key()])) << item.key();
}

// An epoch of four ranks, of which one goes on: warm-up in the first epoch, then a cosine to zero.
TEST_F(EpochLoopTest, KeepsTheScheduleInAnEpochThatMoreRanksBegan) {
  TrainOptions options = testing::toy_options(folder_, 4);
  options.log_interval = 1;
  options.limits = {.epochs = 3};
  options.optimizer.schedule.kind = LrScheduleKind::kCosine;
  options.optimizer.schedule.on_updates = true;
  options.optimizer.schedule.warmup_epochs = 1;
  TrainRun run = begin(options);
  run.state.position = {.epoch = 1, .samples = 4 * 128, .epoch_samples = 16 * 128};
  Observer never(run);
  EpochLoop(run, never).pass();
  EXPECT_EQ(run.state.step, 12);
  EXPECT_EQ(run.state.schedule_step, 4) << "the warm-up is over";
  std::vector<double> rates;
  std::ifstream file(options.output + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    rates.push_back(nlohmann::json::parse(line)["lr"]);
  ASSERT_EQ(rates.size(), 12U);
  EXPECT_GT(rates.front(), 0);
  EXPECT_LT(rates.back(), options.optimizer.lr);
  EXPECT_TRUE(std::ranges::is_sorted(rates));
}

TEST_F(EpochLoopTest, LeavesTheLogLineOfACutIntervalToTheNextStart) {
  TrainRun run = begin(5);
  Observer interrupted(run, 2, Course::kInterrupted);
  EpochLoop(run, interrupted).pass();
  EXPECT_EQ(run.meter.steps(), 2);
  EXPECT_EQ(run.state.epoch_total.steps, 0);
}

void scale_weights(const TrainRun& run, double factor) {
  const torch::NoGradGuard no_gradients;
  for (const torch::Tensor& parameter : run.replica->parameters()) parameter.mul_(factor);
}

// In the first step the weights are too large for float16.
TEST_F(EpochLoopTest, AnOverflowThatTheScalerLeavesOutIsNoDivergence) {
  for (const std::int64_t interval : {1, 50}) {
    TrainOptions options = testing::toy_options(folder_, 3);
    options.output += std::to_string(interval);
    options.precision = Precision::k16Mixed;
    options.log_interval = interval;
    TrainRun run = begin(options);
    Observer observer(run);
    scale_weights(run, 1e8);
    observer.after = [&run] {
      if (run.state.step == 1) scale_weights(run, 1e-8);
    };
    const EpochSummary epoch = EpochLoop(run, observer).pass();
    EXPECT_EQ(run.state.skipped_steps, 1);
    EXPECT_TRUE(std::isfinite(epoch.train_loss)) << interval;
    EXPECT_LT(epoch.train_loss, 10);
  }
}

// A gradient that overflows in every step, though the loss does not: no scale helps.
TEST_F(EpochLoopTest, AScaleBelow1EndsTheRun) {
  TrainOptions options = testing::toy_options(folder_, 3);
  options.precision = Precision::k16Mixed;
  options.log_interval = 1;
  TrainRun run = begin(options);
  auto scaler = *run.replica->scaler();
  scaler.scale = 1;
  run.replica->restore_scaler(scaler);
  for (const torch::Tensor& parameter : run.replica->parameters())
    parameter.register_hook([](const torch::Tensor& gradient) { return gradient * INFINITY; });
  Observer observer(run, 2);
  EXPECT_THAT([&] { EpochLoop(run, observer).pass(); },
      ::testing::ThrowsMessage<DivergedError>(::testing::HasSubstr(
          "gradients overflowed whatever the loss was multiplied by in epoch 1, up to step 1")));
}

// The contents that a snapshot of a run would have.
class State {
 public:
  explicit State(const TrainRun& run)
      : tensors_(copies(run.replica->state())),
        random_(copies(random_state())),
        meter_(run.meter.part()),
        position_(run.state.position) {}

  void expect_equal(const State& other) const {
    EXPECT_EQ(meter_.samples, other.meter_.samples);
    EXPECT_EQ(meter_.loss_sum, other.meter_.loss_sum);
    EXPECT_EQ(position_.samples, other.position_.samples);
    EXPECT_TRUE(random_.front().equal(other.random_.front()));
    ASSERT_EQ(tensors_.size(), other.tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      EXPECT_TRUE(tensors_[i].equal(other.tensors_[i])) << i;
  }

 private:
  static std::vector<torch::Tensor> copies(const nn::NamedTensors& tensors) {
    std::vector<torch::Tensor> all;
    for (const auto& item : tensors) all.push_back(item.value().detach().clone());
    return all;
  }

  std::vector<torch::Tensor> tensors_, random_;
  MeterReading meter_;
  EpochPosition position_;
};

// In so many parts.
class AbandonedStep : public TrainerParts, public ::testing::WithParamInterface<std::int64_t> {
 protected:
  TrainRun begin_accumulating(std::int64_t parts) {
    TrainOptions options = testing::toy_options(folder_, 3 * parts);
    options.model = "resnet18-cifar";  // whose batch norm counts each part
    options.batch_size = 2;
    options.grad_accum_steps = parts;
    return begin(options);
  }
};

TEST_F(AbandonedStep, LeavesNothingOfItsParts) {
  TrainRun run = begin_accumulating(4);
  const State before(run);
  Observer interrupted(run);
  interrupted.on_part = [&, parts_left = 3]() mutable {
    at::rand({1});  // as a dropout would
    if (--parts_left == 0) interrupted.now = Course::kInterrupted;
  };
  EpochLoop(run, interrupted).pass();
  EXPECT_THAT(interrupted.last_saves, ElementsAre(0));
  EXPECT_EQ(run.state.step, 0);
  State(run).expect_equal(before);
}

// In the second step, when all but the parameters' change is done.
TEST_P(AbandonedStep, LeavesNothingWhenPeersAreLost) {
  TrainRun run = begin_accumulating(GetParam());
  Observer observer(run);
  std::optional<State> after_first;
  observer.may_undo = true;
  observer.before = [&] {
    at::rand({1});  // as a dropout would
    if (after_first) throw CommError("a peer is gone");
  };
  observer.after = [&] { after_first.emplace(run); };
  EpochLoop loop(run, observer);
  EXPECT_THROW(loop.pass(), CommError);
  loop.undo_step();
  EXPECT_EQ(run.state.step, 1);
  State(run).expect_equal(after_first.value());
}

INSTANTIATE_TEST_SUITE_P(Parts, AbandonedStep, ::testing::Values(1, 4));

}  // namespace
}  // namespace lockstep
