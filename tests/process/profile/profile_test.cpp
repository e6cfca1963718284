// `lockstep train --profile`: what it prints and leaves.

#include "lockstep/train/profile/profile.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tests/process/command.h"
#include "tests/process/train/idx_files.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kBatch = 16;

class TrainProfile : public ::testing::Test {
 protected:
  std::string output() const { return folder_.file("run"); }

  Ended run(const std::string& more) const {
    return train(data_.flag() + " --output " + output() + " --model mnist-small -b 16 " +
                 "--val-interval never --progress none " + more);
  }

  Json file(const std::string& name) const { return Json::parse(contents(output() + name)); }

  RunProfile profile() const {
    const std::string name = output() + "/profile/profile.json";
    return read_profile(contents(name), name);
  }

  std::set<std::int64_t> ranks_in_trace() const {
    std::set<std::int64_t> ranks;
    const Json trace = file("/profile/trace.json");
    for (const Json& event : trace["traceEvents"])
      if (event["ph"] == "X") ranks.insert(event["pid"].get<std::int64_t>());
    return ranks;
  }

  IdxFiles data_{640, 16};
  TemporaryFolder folder_;
};

// Two ranks of pp have each its stages; there is one rank where stages are places.
double flops_of(const RunProfile& profile) {
  return std::accumulate(profile.ranks.begin(), profile.ranks.end(), 0.0,
      [](double sum, const RankProfile& rank) { return sum + rank.flops; });
}

// A 3x3 convolution whose input needs no gradient, and two linear layers.
constexpr double kFlopsOfASample =
    2 * (2.0 * 28 * 28 * 32 * 9) + 3 * (2.0 * 6272 * 64) + 3 * (2.0 * 64 * 10);

void expect_phases_add_up(const RunProfile& profile) {
  for (const RankProfile& rank : profile.ranks) {
    EXPECT_EQ(rank.steps, 10);
    for (const LaneProfile& lane : rank.lanes) {
      const double sum = std::accumulate(lane.phases.begin(), lane.phases.end(), 0.0);
      EXPECT_NEAR(sum, rank.step, 1e-6 * rank.step);
      for (const double phase : lane.phases) EXPECT_GE(phase, -1e-6 * rank.step);
    }
  }
}

const LayerProfile& layer_named(const RankProfile& rank, const std::string& name) {
  const auto found = std::ranges::find(rank.layers, name, &LayerProfile::name);
  if (found == rank.layers.end()) throw std::runtime_error("no layer " + name);
  return *found;
}

TEST_F(TrainProfile, OfRanksSaysWhereEachSpendsItsTime) {
  const auto ended = run("--profile --nproc-per-node 2 --parallel ddp --max-steps 15 --json");
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("Profile of 10 steps"));
  EXPECT_THAT(ended.out, HasSubstr("hidden behind backward"));
  const RunProfile found = profile();
  ASSERT_EQ(found.ranks.size(), 2U);
  expect_phases_add_up(found);
  EXPECT_DOUBLE_EQ(flops_of(found), 2 * kBatch * kFlopsOfASample);
  for (const RankProfile& rank : found.ranks) {
    EXPECT_GT(rank.lanes.at(0).of(StepPhase::kForward), 0);
    EXPECT_GT(rank.lanes[0].of(StepPhase::kBackward), 0);
    EXPECT_GT(rank.lanes[0].of(StepPhase::kCommunication), 0);
    EXPECT_GT(rank.lanes[0].of(StepPhase::kOptimizer), 0);
    EXPECT_GT(rank.reduction, 0);
    for (const char* name : {"0", "4", "6"}) {
      EXPECT_GT(layer_named(rank, name).forward, 0) << name;
      EXPECT_GT(layer_named(rank, name).backward, 0) << name;
    }
  }
  EXPECT_EQ(ranks_in_trace(), (std::set<std::int64_t>{0, 1}));
  const Json summary = file("/summary.json");
  EXPECT_GT(summary["profile"]["share_of_peak"].get<double>(), 0);
}

TEST_F(TrainProfile, OfAPipelineHasTheStagesAndTheirIdleTime) {
  const auto ended = run("--profile --parallel pp --places 2 --max-steps 15");
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("stage 1: "));
  EXPECT_THAT(ended.out, HasSubstr("idle (bubble)"));
  const RunProfile found = profile();
  ASSERT_EQ(found.ranks.size(), 1U);
  expect_phases_add_up(found);
  EXPECT_DOUBLE_EQ(flops_of(found), kBatch * kFlopsOfASample);
  ASSERT_EQ(found.ranks[0].lanes.size(), 3U);
  EXPECT_GT(found.ranks[0].lanes[0].of(StepPhase::kStages), 0);
  for (const std::size_t stage : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_GT(found.ranks[0].lanes[stage].of(StepPhase::kForward), 0);
    EXPECT_GT(found.ranks[0].lanes[stage].of(StepPhase::kBackward), 0);
  }
}

TEST_F(TrainProfile, BeginsAfterAWarmUp) {
  const auto ended = run("--profile --max-steps 3");
  EXPECT_EQ(ended.code(), 0);
  EXPECT_THAT(ended.err, HasSubstr("no profile: it begins after 3 steps"));
  EXPECT_FALSE(std::filesystem::exists(output() + "/profile"));
}

TEST_F(TrainProfile, IsMadeOnlyIfAsked) {
  const auto ended = train(data_.flag() + " --output " + output() +
                           " --model mnist-small -b 16 --max-steps 15 --progress none");
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.out, Not(HasSubstr("Profile")));
  EXPECT_FALSE(std::filesystem::exists(output() + "/profile"));
  EXPECT_FALSE(file("/summary.json").contains("profile"));
}

TEST_F(TrainProfile, IsReplacedWithItsRun) {
  ASSERT_EQ(run("--profile --max-steps 5").code(), 0);
  ASSERT_TRUE(std::filesystem::exists(output() + "/profile/trace.json"));
  ASSERT_EQ(run("--max-steps 3 --overwrite").code(), 0);
  EXPECT_FALSE(std::filesystem::exists(output() + "/profile"));
}

}  // namespace
}  // namespace lockstep::testing
