#include "lockstep/train/optim/lr_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/optim/lr_schedule_expected.h"

namespace lockstep {
namespace {

const LrSchedule kPlateauAfterWarmup{
    .kind = LrScheduleKind::kPlateau, .lr = 0.1, .steps_a_tick = 5, .warmup = 2, .warmup_lr = 0.02};
const PlateauRule kImpatient{.factor = 0.5, .patience = 0};

TEST(LrScheduler, FollowsTheScheduleWhateverTheEvaluations) {
  const LrSchedule cosine{.kind = LrScheduleKind::kCosine, .lr = 0.1, .length = 4};
  LrScheduler scheduler(cosine, kImpatient);
  for (std::int64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(scheduler.lr(step), lr_at(cosine, step)) << step;
    scheduler.evaluated(step + 1, 1);
  }
}

TEST(LrScheduler, LowersAPlateausRateAfterTheWarmup) {
  LrScheduler scheduler(kPlateauAfterWarmup, kImpatient);
  EXPECT_DOUBLE_EQ(scheduler.lr(0), 0.02);
  EXPECT_DOUBLE_EQ(scheduler.lr(5), 0.06);
  EXPECT_DOUBLE_EQ(scheduler.lr(10), 0.1);
  scheduler.evaluated(5, 1);
  scheduler.evaluated(10, 2);
  EXPECT_DOUBLE_EQ(scheduler.lr(10), 0.1) << "evaluations of the warm-up do not count";
  scheduler.evaluated(15, 3);
  scheduler.evaluated(20, 3);
  EXPECT_DOUBLE_EQ(scheduler.lr(20), 0.05);
  EXPECT_DOUBLE_EQ(scheduler.lr(5), 0.06) << "a step of the warm-up keeps its rate";
}

TEST(LrScheduler, GoesOnFromAStateThatWasKept) {
  LrScheduler whole({.kind = LrScheduleKind::kPlateau, .lr = 0.1}, {.factor = 0.5, .patience = 3});
  LrScheduler first = whole;
  LrScheduler second = whole;
  const auto& losses = testing::kPlateauLosses;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto steps = static_cast<std::int64_t>(i) + 1;
    whole.evaluated(steps, losses[i]);
    (i < 25 ? first : second).evaluated(steps, losses[i]);
    if (i == 24) second.restore(first.plateau());
  }
  EXPECT_EQ(second.plateau(), whole.plateau());
  EXPECT_LT(whole.lr(100), 0.1);
}

}  // namespace
}  // namespace lockstep
