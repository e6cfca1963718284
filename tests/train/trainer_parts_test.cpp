// What the trainer does between steps and after epochs, each part alone, on one rank.

#include "tests/train/trainer_parts.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <system_error>

#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/epoch_loop.h"
#include "lockstep/train/validator.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TrainerParts;

using ValidatorTest = TrainerParts;

TEST_F(ValidatorTest, IsDueByTheIntervalAndAtTheEnd) {
  TrainOptions options = testing::toy_options(folder_, 1);
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
  TrainOptions options = testing::toy_options(folder_, 2);
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

// Trains until the epoch ends, or a limit is reached, and returns the step that was saved last.
std::optional<std::int64_t> train(TrainRun& run) {
  Checkpointer checkpointer(run);
  EpochLoop(run, checkpointer).pass();
  checkpointer.finish();
  return checkpointer.last_saved();
}

TEST_F(CheckpointerTest, EndsAtTheFirstLimit) {
  TrainOptions options = testing::toy_options(folder_, 10);
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
  TrainOptions options = testing::toy_options(folder_, 5);
  options.limits = {.steps = 3};
  options.optimizer.schedule.kind = LrScheduleKind::kPlateau;
  RunState saved;
  nn::NamedTensors weights("Tensor");
  {
    TrainRun run = begin(options);
    EXPECT_EQ(train(run), 3);
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

TEST_F(CheckpointerTest, ARunThatIsCopiedKeepsItsIdAndABranchGetsOne) {
  TrainOptions options = testing::toy_options(folder_, 5);
  options.limits = {.steps = 2};
  std::string id;
  {
    TrainRun run = begin(options);
    id = run.state.setup.run;
    EXPECT_FALSE(id.empty());
    train(run);
  }
  const std::string first = options.output;
  options.output += "-copy";
  std::filesystem::copy(first, options.output, std::filesystem::copy_options::recursive);
  options.resume.kind = Resume::kAuto;
  const TrainRun copied = begin(options);
  EXPECT_EQ(copied.state.step, 2);
  EXPECT_EQ(copied.state.setup.run, id);
  options.output = first + "-branch";
  options.resume = {.kind = Resume::kFrom, .from = first};
  const TrainRun branch = begin(options);
  EXPECT_EQ(branch.state.step, 2);
  EXPECT_NE(branch.state.setup.run, id);
  EXPECT_FALSE(branch.state.setup.run.empty());
}

// Two ranks, then one.
TEST_F(CheckpointerTest, ARateThatFollowsTheBatchDoesSoInAnotherWorld) {
  TrainOptions options = testing::toy_options(folder_, 5);
  options.limits = {.steps = 2};
  options.parallel = Parallel::kDdp;
  options.optimizer.lr_scale = LrScale::kLinear;
  options.optimizer.schedule.kind = LrScheduleKind::kPlateau;
  const double lr = options.optimizer.lr;
  run_ranks(2, [&](const ProcessGroup& world) {
    TrainRun run(options, world, {"test"});
    train(run);
    EXPECT_DOUBLE_EQ(run.state.plateau.lr, 2 * lr);
  });
  options.resume.kind = Resume::kAuto;
  ::testing::internal::CaptureStderr();
  const TrainRun alone = begin(options);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(alone.state.step, 2);
  EXPECT_DOUBLE_EQ(alone.state.plateau.lr, lr);
  EXPECT_THAT(said, HasSubstr("the global batch is 128 samples now, and was 256"));
  EXPECT_THAT(said, HasSubstr("going on from")) << "--progress none hides no such thing";
}

TEST_F(CheckpointerTest, AFirstStartWarnsOfNothing) {
  TrainOptions options = testing::toy_options(folder_, 5);
  options.progress = ProgressStyle::kLine;
  options.resume.kind = Resume::kAuto;
  const auto said_by_start = [&] {
    ::testing::internal::CaptureStderr();
    begin(options);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string first = said_by_start();
  EXPECT_THAT(first, HasSubstr("training starts anew"));
  EXPECT_THAT(first, Not(HasSubstr("warning")));
  EXPECT_THAT(said_by_start(), HasSubstr("warning: no complete snapshot")) << "that was lost";
}

nn::NamedTensors weights_of(double value) {
  nn::NamedTensors weights("Tensor");
  weights.insert("weight", torch::full({1, 3}, value));
  return weights;
}

double value_in(const std::filesystem::path& file) {
  torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
  nn::load_weights(*net, file);
  return net->weight.mean().item<double>();
}

class BestWeightsOnAFullDisk : public ::testing::Test {
 protected:
  std::string save_without_room(const nn::NamedTensors& weights) {
    const testing::FileSizeLimit limit(10);
    return best_.save(weights, {{"epoch", "1"}});
  }

  testing::TemporaryFolder folder_;
  BestWeights best_{folder_.str() + "/best.safetensors"};
};

TEST_F(BestWeightsOnAFullDisk, KeepsWhatTheyWere) {
  const nn::NamedTensors weights = weights_of(1);
  EXPECT_THAT(
      save_without_room(weights), AllOf(HasSubstr("best.safetensors"), HasSubstr("too large")));
  EXPECT_FALSE(std::filesystem::exists(best_.file()));
  weights["weight"].fill_(7);  // training goes on
  best_.finish();
  EXPECT_EQ(value_in(best_.file()), 1);
}

TEST_F(BestWeightsOnAFullDisk, ABetterEpochTakesTheirPlace) {
  EXPECT_NE(save_without_room(weights_of(1)), "");
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  best_.finish();
  EXPECT_EQ(value_in(best_.file()), 2);
}

TEST_F(BestWeightsOnAFullDisk, GivesBackWhatItKeepsOrWrote) {
  const nn::NamedTensors room = weights_of(0);
  EXPECT_NE(save_without_room(weights_of(1)), "");
  best_.load(room, {{"epoch", "1"}});
  EXPECT_EQ(room["weight"].mean().item<double>(), 1);
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  best_.load(room, {{"epoch", "2"}});
  EXPECT_EQ(room["weight"].mean().item<double>(), 2);
}

TEST_F(BestWeightsOnAFullDisk, GivesBackNothingOfAnotherEpoch) {
  const nn::NamedTensors room = weights_of(0);
  EXPECT_THROW(best_.load(room, {{"epoch", "1"}}), DataError) << "there is no file";
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  EXPECT_THROW(best_.load(room, {{"epoch", "1"}}), DataError);
  EXPECT_EQ(room["weight"].mean().item<double>(), 0);
}

TEST_F(BestWeightsOnAFullDisk, SaysAtTheEndThatItStillIs) {
  EXPECT_NE(save_without_room(weights_of(1)), "");
  const testing::FileSizeLimit limit(10);
  EXPECT_THROW(best_.finish(), std::system_error);
}

}  // namespace
}  // namespace lockstep
