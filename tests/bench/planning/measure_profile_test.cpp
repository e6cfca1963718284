#include "bench/planning/measure_profile.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMostSteps = 200;

// In the place of `lockstep`: refuses batches that are listed, and else leaves what a training
// leaves, with as many steps as were asked for.
constexpr const char* kTrainer = R"(#!/bin/sh
here=$(dirname "$0")
while [ $# -gt 0 ]; do
  case "$1" in
    --batch-size) batch=$2 ;;
    --max-steps) steps=$2 ;;
    --output) run=$2 ;;
  esac
  shift
done
[ -f "$here/broken" ] && { echo "there is no such model" >&2; exit 2; }
grep -qx "$batch" "$here/refused" && { echo "a batch of $batch does not divide" >&2; exit 2; }
mkdir -p "$run/profile"
head -n "$steps" "$here/metrics.jsonl" > "$run/metrics.jsonl"
cp "$here/summary.json" "$run/summary.json"
cp "$here/profile.json" "$run/profile/profile.json"
)";

RunProfile made_profile() {
  LaneProfile lane{.thread = "main", .is_main = true};
  lane.of(StepPhase::kForward) = 300;
  lane.of(StepPhase::kBackward) = 300;
  RankProfile rank{.steps = 10,
      .step = 600,
      .lanes = {lane},
      .layers = {},
      .operators = {},
      .timeline = {},
      .batch = 1};
  rank.chain = {{.name = "only", .forward = 1, .backward = 2, .parameter_bytes = {400}}};
  return {.precision = "float32", .ranks = {rank}};
}

class MeasureProfile : public ::testing::Test {
 protected:
  MeasureProfile() {
    write("lockstep", kTrainer);
    fs::permissions(folder_.path() / "lockstep", fs::perms::owner_all);
    write("profile.json", profile_json(made_profile()));
    RunSummary summary;
    summary.model = "toy";
    write("summary.json", to_json(summary));
    std::string lines;
    for (int step = 1; step <= kMostSteps; ++step)
      lines += json_line(
                   {.epoch = 1, .step = step, .split = "train", .samples_per_s = 1, .step_ms = 600},
                   utc_now()) +
               "\n";
    write("metrics.jsonl", lines);
    refuse({});
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.file(name)) << text;
  }

  void refuse(const std::vector<int>& batches) const {
    std::string lines;
    for (const int batch : batches) lines += concat(batch, "\n");
    write("refused", lines);
  }

  std::vector<double> batches_of(const std::vector<int>& batches, double seconds) {
    const auto profile = measure_profile({.model = "toy", .batches = batches, .seconds = seconds},
        {.model = "toy", .precision = "32"},
        {.program = folder_.file("lockstep"), .bench = folder_.path()},
        {.say = [&](const std::string& line) { said_.push_back(line); },
            .keep = [](const plan::ModelProfile&) {}});
    std::vector<double> measured;
    for (const auto& point : profile.layers.front().forward.points())
      measured.push_back(point.batch);
    return measured;
  }

  lockstep::testing::TemporaryFolder folder_;
  std::vector<std::string> said_;
};

constexpr double kNoLimit = 0, kAnHour = 3600;

TEST_F(MeasureProfile, TakesTheBatchesThatAreNamed) {
  EXPECT_THAT(batches_of({8, 4, 2}, kNoLimit), ElementsAre(2, 4, 8));
  EXPECT_THAT(batches_of({8, 4}, kAnHour), ElementsAre(4, 8));
}

TEST_F(MeasureProfile, GoesOnWhereTheBatchOfATrialIsRefused) {
  refuse({4});
  EXPECT_THAT(batches_of({8, 4, 2}, kNoLimit), ElementsAre(2, 8));
  EXPECT_THAT(said_, ::testing::Contains(HasSubstr("batches of 4 cannot be trained: exited with")));
  refuse({2});
  EXPECT_THAT(batches_of({8, 4}, kAnHour), ElementsAre(4, 8)) << "it begins with two samples";
  refuse({2, 4});
  EXPECT_THAT(batches_of({16, 8, 4}, kAnHour), ElementsAre(8, 16));
}

// Smaller ones, for which there is time, may all be refused.
TEST_F(MeasureProfile, KeepsABatchThatCanBeTrained) {
  refuse({1, 2, 4});
  EXPECT_THAT(batches_of({64, 32, 16, 8}, 1), ElementsAre(8));
}

TEST_F(MeasureProfile, EndsWhereNoBatchCanBeTrained) {
  refuse({2, 4, 8});
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] {
    batches_of({8, 4, 2}, kNoLimit);
  }),
      HasSubstr("toy with batches of 8 cannot be trained: exited with code 2"));
  EXPECT_EQ(said_.size(), 5U) << "each was tried, and all but the last given up";
}

TEST_F(MeasureProfile, TriesNoMoreBatchesWhereTheBatchIsNotTheReason) {
  write("broken", "");
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] {
    batches_of({8, 4, 2}, kNoLimit);
  }),
      HasSubstr("there is no such model"));
  EXPECT_EQ(said_.size(), 3U) << "two were tried";
}

}  // namespace
}  // namespace lockstep::bench
