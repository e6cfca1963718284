#include "lockstep/train/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TrainPlan plan() {
  TrainPlan result;
  result.options.parallel = Parallel::kDdp;
  result.options.output = "runs/x";
  result.world_size = 2;
  result.parameters = 402442;
  result.parameter_bytes = result.trained_bytes = 4 * result.parameters;
  result.train_samples = 60000;
  result.test_samples = 10000;
  result.data_bytes = 54880000;
  result.available_bytes = 8000000000;
  return result;
}

TEST(TrainPlan, SaysWhatTheRunWouldDo) {
  EXPECT_EQ(plan_text(plan()),
      "Would train mnist-small on fashion-mnist, ddp on 2 ranks, for 3 epochs.\n"
      "  model      mnist-small, 402442 parameters\n"
      "  data       60000 samples to train with, 10000 to test with\n"
      "  batch      128 on each replica, 256 in all\n"
      "  spread     2 replicas\n"
      "  steps      235 an epoch, 705 in all\n"
      "  optimizer  adam, learning rate 0.001\n"
      "  precision  32\n"
      "  memory     at least 62 MB a rank, and activations; 8000 MB available\n"
      "  flags      --parallel ddp --output runs/x\n"
      "  output     runs/x\n");
}

TEST(TrainPlan, SaysWhatElseIsKnown) {
  TrainPlan more = plan();
  EXPECT_THAT(plan_text(more), ::testing::Not(HasSubstr("start")));
  more.data_remark = "2 files are not read";
  more.start = "38 tensors from F\nweights of F:\n  fc.weight";
  more.options.limits = {.epochs = 1, .steps = 10, .seconds = 5400.0};
  more.options.ema.emplace();
  for (const char* text : {"10000 to test with\n             2 files are not read\n",
           "\n  start      38 tensors from F\n             weights of F:\n               "
           "fc.weight\n",
           "for 1 epoch or 10 steps or 1:30:00.", "235 an epoch, 10 in all",
           "averaged with decay 0.9998"})
    EXPECT_THAT(plan_text(more), HasSubstr(text));
}

TEST(TrainPlan, CountsThePartialBatchAndTheUnevenShare) {
  TrainPlan odd = plan();
  odd.train_samples = 257;
  EXPECT_EQ(steps_an_epoch(odd), 2) << "129 samples for each of 2 ranks";
  odd.train_samples = 256;
  EXPECT_EQ(steps_an_epoch(odd), 1);
  odd.options.limit_train_batches = 3;
  EXPECT_EQ(steps_an_epoch(odd), 1);
}

TEST(TrainPlan, AccumulatedBatchesMakeFewerAndLargerSteps) {
  TrainPlan accumulated = plan();
  accumulated.train_samples = 257;
  accumulated.options.batch_size = 20;
  accumulated.options.grad_accum_steps = 3;
  EXPECT_EQ(steps_an_epoch(accumulated), 3) << "7 batches of 129 samples on each of 2 ranks";
  EXPECT_THAT(plan_text(accumulated), HasSubstr("20 on each replica, 3 times a step, 120 in all"));
  accumulated.options.limit_train_batches = 4;
  EXPECT_EQ(steps_an_epoch(accumulated), 2);
}

TEST(TrainPlan, SaysHowTheLearningRateRuns) {
  TrainPlan scheduled = plan();
  scheduled.options.grad_accum_steps = 2;
  scheduled.options.optimizer.lr_scale = LrScale::kLinear;
  scheduled.options.optimizer.schedule = {.kind = LrScheduleKind::kCosine, .warmup_epochs = 1};
  EXPECT_THAT(
      plan_text(scheduled), HasSubstr("learning rate 0.004, cosine after 1 epochs of warm-up\n"));
  scheduled.options.optimizer.schedule.warmup_epochs = 3;
  EXPECT_THROW(plan_text(scheduled), InvalidArgument) << "the warm-up takes all epochs";
}

TEST(TrainPlan, AveragesNeedMemory) {
  TrainPlan averaged = plan();
  averaged.options.ema.emplace();
  EXPECT_EQ(bytes_a_rank(averaged) - bytes_a_rank(plan()), averaged.parameters * 4);
}

TEST(TrainPlan, OptimizerStateNeedsMemory) {
  TrainPlan sgd = plan();
  const auto adam_bytes = bytes_a_rank(plan());
  sgd.options.optimizer = default_settings(OptimizerKind::kSgd);
  EXPECT_EQ(adam_bytes - bytes_a_rank(sgd), sgd.parameters * 4);
}

TEST(TrainPlan, AShardedOptimizerNeedsItsShareOfTheState) {
  for (const int ranks : {1, 2, 4}) {
    TrainPlan sharded = plan();
    sharded.world_size = ranks;
    const std::int64_t whole = bytes_a_rank(sharded);
    sharded.options.optimizer.sharded = true;
    const std::int64_t state = 2 * sharded.parameter_bytes;
    EXPECT_EQ(whole - bytes_a_rank(sharded), state - state / ranks) << ranks;
  }
}

// Replicas that are threads of one rank have the whole state together.
TEST(TrainPlan, ShardsOfThreadsAddUpToTheWhole) {
  TrainPlan sharded = plan();
  sharded.world_size = 1;
  sharded.options.places = 2;
  const std::int64_t whole = bytes_a_rank(sharded);
  sharded.options.optimizer.sharded = true;
  EXPECT_EQ(whole - bytes_a_rank(sharded), 2 * sharded.parameter_bytes);
}

TEST(TrainPlan, FrozenParametersHaveNeitherGradientsNorState) {
  TrainPlan frozen = plan();
  frozen.trained_bytes = 0;
  EXPECT_EQ(bytes_a_rank(frozen), frozen.data_bytes + frozen.parameter_bytes);
}

}  // namespace
}  // namespace lockstep
