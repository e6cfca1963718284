#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsed_flags.h"

#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::parsed;
using testing::refusal;

TEST(SnapshotFlags, HaveTheirDefaults) {
  const TrainOptions options = parsed("");
  EXPECT_EQ(options.snapshots.unit, SnapshotUnit::kOverhead);
  EXPECT_EQ(options.snapshots.count, 0.01);
  EXPECT_EQ(options.snapshots.keep, 2);
  EXPECT_FALSE(options.snapshots.required);
  EXPECT_TRUE(options.snapshots.rescue);
  EXPECT_EQ(options.resume.kind, Resume::kNever);
}

TEST(SnapshotFlags, SayWhenToSave) {
  const auto interval = [](const char* text) {
    return parsed(concat("--snapshot-interval ", text)).snapshots;
  };
  EXPECT_EQ(interval("500steps").unit, SnapshotUnit::kSteps);
  EXPECT_EQ(interval("500steps").count, 500);
  EXPECT_EQ(interval("2epochs").unit, SnapshotUnit::kEpochs);
  EXPECT_EQ(interval("10m").unit, SnapshotUnit::kSeconds);
  EXPECT_EQ(interval("10m").count, 600);
  EXPECT_EQ(interval("none").unit, SnapshotUnit::kNone);
  const auto more =
      parsed("--snapshot-overhead 0.5% --keep 7 --snapshot-required --no-rescue").snapshots;
  EXPECT_FALSE(more.rescue);
  EXPECT_EQ(more.count, 0.005);
  EXPECT_EQ(more.keep, 7);
  EXPECT_TRUE(more.required);
}

TEST(SnapshotFlags, WhatCannotBeIsRefused) {
  EXPECT_THAT(refusal("--snapshot-interval often"), HasSubstr("500steps"));
  EXPECT_THAT(refusal("--snapshot-interval 0steps"), HasSubstr("500steps"));
  EXPECT_THAT(refusal("--snapshot-overhead 0%"), HasSubstr("1%"));
  EXPECT_THAT(refusal("--snapshot-overhead 1% --snapshot-interval 5s"), HasSubstr("give one"));
  EXPECT_THAT(refusal("--keep 0"), HasSubstr("--keep must be a whole number from 1 to 1000000: 0"));
  EXPECT_THAT(refusal("--resume="), HasSubstr("--resume"));
}

TEST(SnapshotFlags, RanksThatWereStartedAgainAlwaysGoOn) {
  EXPECT_EQ(parsed("--resume auto").resume.kind, Resume::kAuto);
  EXPECT_EQ(parsed("", 1, 1).resume.kind, Resume::kAuto);
  EXPECT_EQ(parsed("--resume never", 1, 1).resume.kind, Resume::kAuto);
  const ResumeSettings named = parsed("--resume runs/a", 1, 2).resume;
  EXPECT_EQ(named.kind, Resume::kFrom);
  EXPECT_EQ(named.from, "runs/a");
  EXPECT_TRUE(named.again);
}

TEST(SnapshotFlags, AreInTheConfigurationAsTheyCanBeGiven) {
  EXPECT_THAT(config_toml(parsed("--snapshot-interval 500steps --keep 3 --resume auto")),
      AllOf(HasSubstr("snapshot-interval = \"500steps\"\n"), HasSubstr("keep = 3\n"),
          HasSubstr("resume = \"auto\"\n")));
  EXPECT_THAT(config_toml(parsed("")), HasSubstr("snapshot-overhead = \"1%\"\n"));
}

}  // namespace
}  // namespace lockstep
