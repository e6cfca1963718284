#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/train/state/epoch_position.h"

namespace lockstep {
namespace {

TEST(Accumulation, OneBatchAStepIsAllOfIt) {
  const EpochBatches epoch{.samples = 70, .batch_size = 32, .batches = 3};
  EXPECT_EQ(steps_of(epoch), 3);
  for (std::int64_t number = 0; number < 3; ++number)
    EXPECT_EQ(step_part(epoch, number), StepPart{}) << number;
}

TEST(Accumulation, TheLastStepTakesWhatIsLeft) {
  // 32 32 32 | 32 22
  const EpochBatches epoch{.samples = 150, .batch_size = 32, .batches = 5, .batches_a_step = 3};
  EXPECT_EQ(steps_of(epoch), 2);
  EXPECT_EQ(step_part(epoch, 0), (StepPart{32.0 / 96, 0, false}));
  EXPECT_EQ(step_part(epoch, 1), (StepPart{32.0 / 96, 1, false}));
  EXPECT_EQ(step_part(epoch, 2), (StepPart{32.0 / 96, 2, true}));
  EXPECT_EQ(step_part(epoch, 3), (StepPart{32.0 / 54, 0, false}));
  EXPECT_EQ(step_part(epoch, 4), (StepPart{22.0 / 54, 1, true}));
}

TEST(Accumulation, BatchesThatAreNotTrainedOnDoNotCount) {
  const EpochBatches epoch{.samples = 150, .batch_size = 32, .batches = 4, .batches_a_step = 3};
  EXPECT_EQ(steps_of(epoch), 2);
  EXPECT_EQ(step_part(epoch, 3), StepPart{}) << "alone in its step, though there is a fifth batch";
}

TEST(Accumulation, SharesOfAStepAddUpToOne) {
  for (std::int64_t samples = 1; samples < 40; ++samples) {
    const std::int64_t batches = (samples + 3) / 4;
    const EpochBatches epoch{
        .samples = samples, .batch_size = 4, .batches = batches, .batches_a_step = 3};
    double sum = 0;
    std::int64_t steps = 0;
    for (std::int64_t number = 0; number < batches; ++number) {
      const StepPart part = step_part(epoch, number);
      sum = part.number == 0 ? part.share : sum + part.share;
      if (!part.is_last) continue;
      EXPECT_DOUBLE_EQ(sum, 1) << samples << " samples, batch " << number;
      ++steps;
    }
    EXPECT_EQ(steps, steps_of(epoch)) << samples;
  }
}

TEST(Accumulation, MoreBatchesAStepThanThereAreMakeOneStep) {
  const EpochBatches epoch{
      .samples = 8, .batch_size = 4, .batches = 2, .batches_a_step = INT64_MAX};
  EXPECT_EQ(steps_of(epoch), 1);
  EXPECT_EQ(step_part(epoch, 1), (StepPart{0.5, 1, true}));
}

}  // namespace
}  // namespace lockstep
