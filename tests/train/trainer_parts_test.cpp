// The parts of the trainer, each alone, on one rank.

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/temporary_folder.h"
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/epoch_loop.h"
#include "lockstep/train/snapshot/restore_tensors.h"
#include "lockstep/train/validator.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// A run of `toy` on the mock data: 234 batches of 128 an epoch, of which `batches` are taken.
TrainOptions toy_options(const testing::TemporaryFolder& folder, std::int64_t batches) {
  TrainOptions options;
  options.model = "toy";
  options.data.name = "mock";
  options.limit_train_batches = batches;
  options.progress = ProgressStyle::kNone;
  options.snapshots = {.unit = SnapshotUnit::kSteps, .count = 2};
  options.output = folder.str() + "/run";
  return options;
}

class TrainerParts : public ::testing::Test {
 protected:
  TrainRun begin(std::int64_t batches) { return begin(toy_options(folder_, batches)); }
  TrainRun begin(const TrainOptions& options) { return {options, ProcessGroup(), {"test"}}; }

  testing::TemporaryFolder folder_;
};

// Ends the training after a step, and notes what it is asked.
class EndAfter final : public StepObserver {
 public:
  EndAfter(const TrainRun& run, std::int64_t step, Course end = Course::kEnds)
      : run_(run), step_(step), end_(end) {}
  Course course() const override { return course_; }
  Course after_step(bool epoch_is_over) override {
    epoch_ends.push_back(epoch_is_over);
    return course_ = run_.state.step == step_ ? end_ : Course::kGoesOn;
  }
  void save_step(bool is_last) override {
    (is_last ? last_saves : other_saves).push_back(run_.state.step);
  }

  std::vector<bool> epoch_ends;
  std::vector<std::int64_t> last_saves, other_saves;

 private:
  const TrainRun& run_;
  std::int64_t step_;
  Course end_, course_ = Course::kGoesOn;
};

using EpochLoopTest = TrainerParts;

TEST_F(EpochLoopTest, PassesOnceOverTheData) {
  TrainRun run = begin(4);
  EndAfter never(run, 100);
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
  EndAfter never(whole, 100);
  const EpochSummary at_once = EpochLoop(whole, never).pass();
  TrainOptions options = toy_options(folder_, 5);
  options.output += "-2";
  TrainRun parts = begin(options);
  EndAfter second(parts, 2);
  EXPECT_EQ(EpochLoop(parts, second).pass().samples, 2 * 128);
  EXPECT_THAT(second.last_saves, ElementsAre(2));
  EndAfter later(parts, 100);
  const EpochSummary rest = EpochLoop(parts, later).pass();
  EXPECT_EQ(rest.samples, at_once.samples);
  EXPECT_NEAR(rest.train_loss, at_once.train_loss, 1e-12);
  for (const auto& item : whole.replica->state())
    EXPECT_TRUE(item.value().equal(parts.replica->state()[item.key()])) << item.key();
}

TEST_F(EpochLoopTest, LeavesTheLogLineOfACutIntervalToTheNextStart) {
  TrainRun run = begin(5);
  EndAfter interrupted(run, 2, Course::kInterrupted);
  EpochLoop(run, interrupted).pass();
  EXPECT_EQ(run.meter.steps(), 2);
  EXPECT_EQ(run.state.epoch_total.steps, 0);
}

// Makes the weights too large for float16 in the first step.
class OverflowsFirst final : public StepObserver {
 public:
  explicit OverflowsFirst(TrainRun& run) : run_(run) { scale(1e8); }
  Course course() const override { return Course::kGoesOn; }
  Course after_step(bool /*epoch_is_over*/) override {
    if (run_.state.step == 1) scale(1e-8);
    return Course::kGoesOn;
  }
  void save_step(bool /*is_last*/) override {}

 private:
  void scale(double factor) {
    const torch::NoGradGuard no_gradients;
    for (const torch::Tensor& parameter : run_.replica->parameters()) parameter.mul_(factor);
  }

  TrainRun& run_;
};

TEST_F(EpochLoopTest, AnOverflowThatTheScalerLeavesOutIsNoDivergence) {
  for (const std::int64_t interval : {1, 50}) {
    TrainOptions options = toy_options(folder_, 3);
    options.output += std::to_string(interval);
    options.precision = Precision::k16Mixed;
    options.log_interval = interval;
    TrainRun run = begin(options);
    OverflowsFirst observer(run);
    const EpochSummary epoch = EpochLoop(run, observer).pass();
    EXPECT_EQ(run.state.skipped_steps, 1);
    EXPECT_TRUE(std::isfinite(epoch.train_loss)) << interval;
    EXPECT_LT(epoch.train_loss, 10);
  }
}

// Interrupts the training after so many parts of steps that are not their last.
class InterruptPart final : public StepObserver {
 public:
  explicit InterruptPart(int parts) : parts_left_(parts) {}
  Course course() const override {
    return parts_left_ > 0 ? Course::kGoesOn : Course::kInterrupted;
  }
  Course after_part() override {
    at::rand({1});  // as a dropout would
    --parts_left_;
    return course();
  }
  Course after_step(bool) override { return course(); }
  void save_step(bool) override { ++saves; }

  int saves = 0;

 private:
  int parts_left_;
};

std::vector<torch::Tensor> copies(const nn::NamedTensors& tensors) {
  std::vector<torch::Tensor> all;
  for (const auto& item : tensors) all.push_back(item.value().detach().clone());
  return all;
}

TEST_F(EpochLoopTest, AStepThatIsAbandonedLeavesNothing) {
  TrainOptions options = toy_options(folder_, 8);
  options.model = "resnet18-cifar";  // whose batch norm counts each part
  options.batch_size = 2;
  options.grad_accum_steps = 4;
  TrainRun run = begin(options);
  const auto state = copies(run.replica->state()), random = copies(random_state());
  const MeterReading meter = run.meter.part();
  InterruptPart interrupted(3);
  EpochLoop(run, interrupted).pass();
  EXPECT_EQ(interrupted.saves, 1);
  EXPECT_EQ(run.state.step, 0);
  EXPECT_EQ(run.state.position.samples, 0);
  EXPECT_EQ(run.meter.part().samples, meter.samples);
  EXPECT_EQ(run.meter.part().loss_sum, meter.loss_sum);
  const auto state_after = copies(run.replica->state()), random_after = copies(random_state());
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(state[i].equal(state_after[i])) << i;
  EXPECT_TRUE(random.front().equal(random_after.front()));
}

using ValidatorTest = TrainerParts;

TEST_F(ValidatorTest, IsDueByTheIntervalAndAtTheEnd) {
  TrainOptions options = toy_options(folder_, 1);
  options.val_interval = 2;
  TrainRun run = begin(options);
  Checkpointer checkpointer(run);
  const Validator validator(run, checkpointer);
  run.state.position.epoch = 1;
  EXPECT_FALSE(validator.is_due(false));
  EXPECT_TRUE(validator.is_due(true));
  run.state.position.epoch = 2;
  EXPECT_TRUE(validator.is_due(false));
  run.options.val_interval = -1;
  EXPECT_FALSE(validator.is_due(true)) << "never";
}

TEST_F(ValidatorTest, KeepsTheWeightsOfTheBestEpoch) {
  TrainRun run = begin(2);
  Checkpointer checkpointer(run);
  Validator validator(run, checkpointer);
  EpochSummary first{.epoch = 1}, same{.epoch = 2};
  EXPECT_TRUE(validator.evaluate(first));
  ASSERT_TRUE(first.val.loss && first.val.top1);
  EXPECT_EQ(run.state.best->epoch, 1);
  EXPECT_EQ(run.state.best->value, first.val.loss);
  EXPECT_GT(first.val_seconds.value_or(0), 0);
  EXPECT_EQ(first.val_samples, run.data.test->size());
  EXPECT_TRUE(std::filesystem::exists(run.options.output + "/best.safetensors"));
  EXPECT_FALSE(validator.evaluate(same)) << "of equal ones the first stays";
  EXPECT_EQ(same.val, first.val);
  EXPECT_EQ(run.state.best->epoch, 1);
}

TEST_F(ValidatorTest, ComparesTheAveragesIfThereAreSome) {
  TrainOptions options = toy_options(folder_, 2);
  options.ema.emplace();
  TrainRun run = begin(options);
  Checkpointer checkpointer(run);
  Validator validator(run, checkpointer);
  EpochSummary epoch{.epoch = 1};
  run.replica->parameters().front().detach().zero_();  // the averages have not followed
  EXPECT_TRUE(validator.evaluate(epoch));
  EXPECT_NE(epoch.val.loss, epoch.ema.loss);
  EXPECT_EQ(run.state.best->value, epoch.ema.loss);
  EXPECT_EQ(epoch.val_samples, 2 * run.data.test->size()) << "both evaluations";
}

using CheckpointerTest = TrainerParts;

TEST_F(CheckpointerTest, EndsAtTheFirstLimit) {
  TrainOptions options = toy_options(folder_, 10);
  options.limits = {.epochs = 3, .steps = 2};
  TrainRun run = begin(options);
  Checkpointer checkpointer(run);
  run.state.step = 1;
  EXPECT_EQ(checkpointer.after_step(false), Course::kGoesOn);
  run.state.step = 2;
  EXPECT_EQ(checkpointer.after_step(false), Course::kEnds);
  EXPECT_EQ(checkpointer.stopped_by(), "max-steps");
  EXPECT_EQ(Checkpointer(run).course(), Course::kEnds) << "another start has nothing to do";
}

TEST_F(CheckpointerTest, SavesTheStateThatAResumedRunBeginsWith) {
  TrainOptions options = toy_options(folder_, 5);
  options.limits = {.steps = 3};
  options.optimizer.schedule.kind = LrScheduleKind::kPlateau;
  RunState saved;
  nn::NamedTensors weights("Tensor");
  {
    TrainRun run = begin(options);
    Checkpointer checkpointer(run);
    EpochLoop(run, checkpointer).pass();
    checkpointer.finish();
    EXPECT_EQ(checkpointer.last_saved(), 3);
    saved = run.state;
    weights = run.replica->state();
  }
  options.resume.kind = Resume::kAuto;
  TrainRun resumed = begin(options);
  saved.epoch_total = {};  // of the log line that came after the snapshot
  saved.restarts = 1;
  saved.seconds = resumed.state.seconds;
  EXPECT_EQ(to_json(resumed.state), to_json(saved));
  EXPECT_EQ(resumed.meter.steps(), 3);
  EXPECT_GT(resumed.clock.read().training, 0);
  for (const auto& item : weights)
    EXPECT_TRUE(item.value().equal(resumed.replica->state()[item.key()])) << item.key();
}

}  // namespace
}  // namespace lockstep
