#include "lockstep/snapshot/snapshot_interval.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

TEST(SnapshotInterval, ReadsStepsEpochsTimeAndNone) {
  const auto steps = parse_snapshot_interval("500steps");
  EXPECT_EQ(steps.unit, SnapshotUnit::kSteps);
  EXPECT_EQ(steps.count, 500);
  const auto epochs = parse_snapshot_interval("2epochs");
  EXPECT_EQ(epochs.unit, SnapshotUnit::kEpochs);
  EXPECT_EQ(epochs.count, 2);
  for (const char* text : {"600s", "10m"}) {
    const auto seconds = parse_snapshot_interval(text);
    EXPECT_EQ(seconds.unit, SnapshotUnit::kSeconds);
    EXPECT_EQ(seconds.count, 600);
  }
  EXPECT_EQ(parse_snapshot_interval("none").unit, SnapshotUnit::kNone);
  EXPECT_EQ(parse_snapshot_interval("never").unit, SnapshotUnit::kNever);
}

TEST(SnapshotInterval, RefusesWhatCouldMeanTwoThings) {
  for (const char* text :
      {"", "500", "1.5", "0steps", "-3steps", "1.5epochs", "steps", "epochs", "5 steps", "0s",
          "-1s", "infs", "nan", "99999999999999999999steps", "1step", "5stepsx", "None"}) {
    EXPECT_THROW((void)parse_snapshot_interval(text), InvalidArgument) << text;
  }
}

TEST(SnapshotInterval, ReadsAShareOfTheTime) {
  EXPECT_DOUBLE_EQ(parse_snapshot_overhead("1%"), 0.01);
  EXPECT_DOUBLE_EQ(parse_snapshot_overhead("0.5%"), 0.005);
  EXPECT_DOUBLE_EQ(parse_snapshot_overhead("100%"), 1);
  for (const char* text : {"", "%", "1", "0%", "-1%", "101%", "nan%", "inf%", "1%%", "1 %"})
    EXPECT_THROW((void)parse_snapshot_overhead(text), InvalidArgument) << text;
}

TEST(SnapshotInterval, WritesWhatItReads) {
  for (const char* text : {"500steps", "2epochs", "600s", "none", "never"})
    EXPECT_EQ(snapshot_interval_text(parse_snapshot_interval(text)), text);
  EXPECT_EQ(snapshot_interval_text({SnapshotUnit::kOverhead, 0.01}), "1% of the time");
}

TEST(SnapshotInterval, StepsAndEpochsAreDueAtMultiples) {
  const SnapshotInterval steps{SnapshotUnit::kSteps, 100};
  EXPECT_FALSE(is_snapshot_due(steps, {.steps = 0}, {.steps = 99}));
  EXPECT_TRUE(is_snapshot_due(steps, {.steps = 0}, {.steps = 100}));
  EXPECT_FALSE(is_snapshot_due(steps, {.steps = 100}, {.steps = 199}));
  // One of another reason, in between, shifts nothing.
  EXPECT_TRUE(is_snapshot_due(steps, {.steps = 150}, {.steps = 200}));
  EXPECT_TRUE(is_snapshot_due(steps, {.steps = 150}, {.steps = 450}));
  const SnapshotInterval epochs{SnapshotUnit::kEpochs, 2};
  EXPECT_FALSE(is_snapshot_due(epochs, {}, {.steps = 1000, .epochs = 1, .seconds = 1e6}));
  EXPECT_TRUE(is_snapshot_due(epochs, {}, {.steps = 1000, .epochs = 2}));
}

TEST(SnapshotInterval, TimeIsDueAfterTheLastOne) {
  const SnapshotInterval seconds{SnapshotUnit::kSeconds, 60};
  EXPECT_FALSE(is_snapshot_due(seconds, {.seconds = 5}, {.seconds = 64.9}));
  EXPECT_TRUE(is_snapshot_due(seconds, {.seconds = 5}, {.seconds = 65}));
  EXPECT_FALSE(is_snapshot_due({SnapshotUnit::kNone, 0}, {}, {.steps = 1000, .seconds = 1e9}));
}

TEST(SnapshotInterval, AShareOfTimeFollowsTheCost) {
  EXPECT_EQ(seconds_between_snapshots(0.01, std::nullopt), kLeastSnapshotSeconds);
  EXPECT_EQ(
      seconds_between_snapshots(0.01, SnapshotCost{.stall_seconds = 0.001}), kLeastSnapshotSeconds);
  const SnapshotCost cost{.stall_seconds = 0.5, .background_seconds = 1.5};
  EXPECT_DOUBLE_EQ(seconds_between_snapshots(0.01, cost), 200);
  EXPECT_DOUBLE_EQ(seconds_between_snapshots(0.02, cost), 100);
  const SnapshotInterval share{SnapshotUnit::kOverhead, 0.01};
  EXPECT_FALSE(is_snapshot_due(share, {.seconds = 100}, {.seconds = 299}, cost));
  EXPECT_TRUE(is_snapshot_due(share, {.seconds = 100}, {.seconds = 300}, cost));
  EXPECT_TRUE(is_snapshot_due(share, {}, {.seconds = 30}));
}

}  // namespace
}  // namespace lockstep
