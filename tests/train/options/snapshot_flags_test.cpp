#include "lockstep/cli/train/snapshot_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

TrainOptions options_of(const Words& words, int restart_count = 0) {
  return parse_train_flags(
             words, {.world_size = 1,
                     .local_world_size = 1,
                     .unix_time = 0,
                     .restart_count = restart_count})
      .value()
      .options;
}

std::string refusal(const Words& words) {
  try {
    options_of(words);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(SnapshotFlags, HaveTheirDefaults) {
  const TrainOptions options = options_of({});
  EXPECT_EQ(options.snapshots.unit, SnapshotUnit::kOverhead);
  EXPECT_EQ(options.snapshots.count, 0.01);
  EXPECT_EQ(options.snapshots.keep, 2);
  EXPECT_FALSE(options.snapshots.required);
  EXPECT_EQ(options.resume.kind, Resume::kNever);
}

TEST(SnapshotFlags, SayWhenToSave) {
  const auto interval = [](const char* text) {
    return options_of({"--snapshot-interval", text}).snapshots;
  };
  EXPECT_EQ(interval("500steps").unit, SnapshotUnit::kSteps);
  EXPECT_EQ(interval("500steps").count, 500);
  EXPECT_EQ(interval("2epochs").unit, SnapshotUnit::kEpochs);
  EXPECT_EQ(interval("10m").unit, SnapshotUnit::kSeconds);
  EXPECT_EQ(interval("10m").count, 600);
  EXPECT_EQ(interval("none").unit, SnapshotUnit::kNone);
  const auto more =
      options_of({"--snapshot-overhead", "0.5%", "--keep", "7", "--snapshot-required"});
  EXPECT_EQ(more.snapshots.count, 0.005);
  EXPECT_EQ(more.snapshots.keep, 7);
  EXPECT_TRUE(more.snapshots.required);
}

TEST(SnapshotFlags, WhatCannotBeIsRefused) {
  EXPECT_THAT(refusal({"--snapshot-interval", "often"}), HasSubstr("500steps"));
  EXPECT_THAT(refusal({"--snapshot-interval", "0steps"}), HasSubstr("500steps"));
  EXPECT_THAT(refusal({"--snapshot-overhead", "0%"}), HasSubstr("1%"));
  EXPECT_THAT(
      refusal({"--snapshot-overhead", "1%", "--snapshot-interval", "5s"}), HasSubstr("give one"));
  EXPECT_THAT(refusal({"--keep", "0"}), HasSubstr("--keep must be at least 1: 0"));
  EXPECT_THAT(refusal({"--resume", ""}), HasSubstr("--resume"));
}

TEST(SnapshotFlags, RanksThatWereStartedAgainAlwaysGoOn) {
  EXPECT_EQ(options_of({"--resume", "auto"}).resume.kind, Resume::kAuto);
  EXPECT_EQ(options_of({}, 1).resume.kind, Resume::kAuto);
  EXPECT_EQ(options_of({"--resume", "never"}, 1).resume.kind, Resume::kAuto);
  const ResumeSettings named = options_of({"--resume", "runs/a"}, 2).resume;
  EXPECT_EQ(named.kind, Resume::kFrom);
  EXPECT_EQ(named.from, "runs/a");
  EXPECT_TRUE(named.again);
}

TEST(SnapshotFlags, AreInTheConfigurationAsTheyCanBeGiven) {
  const Words words = {"--snapshot-interval", "500steps", "--keep", "3", "--resume", "auto"};
  const std::string text = config_toml(options_of(words));
  EXPECT_THAT(text, HasSubstr("snapshot-interval = \"500steps\"\n"));
  EXPECT_THAT(text, HasSubstr("keep = 3\n"));
  EXPECT_THAT(text, HasSubstr("resume = \"auto\"\n"));
  EXPECT_THAT(config_toml(options_of({})), HasSubstr("snapshot-overhead = \"1%\"\n"));
}

}  // namespace
}  // namespace lockstep::cli
