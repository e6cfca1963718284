// `lockstep train --profile`: what it prints and leaves.

#include "lockstep/record/profile/profile.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tests/process/command.h"
#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kBatch = 16;

class TrainProfile : public ::testing::Test {
 protected:
  std::string output() const { return folder_.file("run"); }

  Ended run(const std::string& more) const { return run_of("--model mnist-small", more); }

  Ended run_of(const std::string& model, const std::string& more) const {
    return train(data_.flag() + " --output " + output() + " -b 16 " + model +
                 " --val-interval never --progress none " + more);
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

// Layers `input`, 0 (convolution, ReLU and pool in one), 3, 4, 5, 6.
void expect_chain_of_mnist_small(const RankProfile& rank, std::int64_t bytes = 4) {
  EXPECT_EQ(rank.batch, kBatch);
  ASSERT_EQ(rank.chain.size(), 6U);
  const std::vector<std::string> names = {"input", "0", "3", "4", "5", "6"};
  const std::vector<std::int64_t> floats = {28 * 28, 6272, 6272, 64, 64, 10};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(rank.chain[i].name, names[i]);
    EXPECT_GT(rank.chain[i].forward, 0) << names[i];
    EXPECT_EQ(rank.chain[i].output_bytes, bytes * kBatch * floats[i]) << names[i];
    EXPECT_EQ(rank.chain[i].backward > 0, i > 0) << names[i];
    EXPECT_EQ(rank.chain[i].backward_input > 0, i > 1) << names[i];
    EXPECT_EQ(rank.chain[i].backward_weight > 0, !rank.chain[i].parameter_bytes.empty())
        << names[i];
  }
  EXPECT_THAT(rank.chain[1].parameter_bytes, ElementsAre(4 * 32 * 9, 4 * 32));
  EXPECT_THAT(rank.chain[3].parameter_bytes, ElementsAre(4 * 6272 * 64, 4 * 64));
  EXPECT_THAT(rank.chain[5].parameter_bytes, ElementsAre(4 * 64 * 10, 4 * 10));
  EXPECT_GT(rank.chain[3].forward, rank.chain[4].forward) << "400000 weights, 64 comparisons";
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
    expect_chain_of_mnist_small(rank);
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
  const auto ended = run("--profile --parallel pp --places 2 --max-steps 15").with_code(0);
  EXPECT_THAT(ended.out, HasSubstr("stage 1: "));
  EXPECT_THAT(ended.out, HasSubstr("idle (bubble)"));
  const RunProfile found = profile();
  ASSERT_EQ(found.ranks.size(), 1U);
  expect_phases_add_up(found);
  EXPECT_DOUBLE_EQ(flops_of(found), kBatch * kFlopsOfASample);
  EXPECT_TRUE(found.ranks[0].chain.empty()) << "no place has the whole model";
  ASSERT_EQ(found.ranks[0].lanes.size(), 3U);
  EXPECT_GT(found.ranks[0].lanes[0].of(StepPhase::kStages), 0);
  for (const std::size_t stage : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_GT(found.ranks[0].lanes[stage].of(StepPhase::kForward), 0);
    EXPECT_GT(found.ranks[0].lanes[stage].of(StepPhase::kBackward), 0);
  }
}

// In processes, in threads and alone; what is measured afterwards leaves nothing behind.
TEST_F(TrainProfile, LeavesTheTrainingAsItIs) {
  const std::string weights = output() + "/model.safetensors";
  const std::string half = "--precision bf16-mixed";
  for (const std::string& way : {std::string(), half, std::string("--nproc-per-node 2"),
           std::string("--parallel ddp --places 2")}) {
    const std::string flags = "--max-steps 15 --overwrite " + way;
    ASSERT_EQ(run(flags).code(), 0) << way;
    const std::string without = contents(weights);
    const Json before = file("/summary.json");
    ASSERT_EQ(run(flags + " --profile").code(), 0) << way;
    EXPECT_EQ(contents(weights), without) << way;
    const Json after = file("/summary.json");
    for (const char* key : {"parameters_hash", "test_loss", "test_accuracy"})
      EXPECT_EQ(after.at(key), before.at(key)) << way << ": " << key;
    for (const RankProfile& rank : profile().ranks)
      expect_chain_of_mnist_small(rank, way == half ? 2 : 4);
  }
}

TEST_F(TrainProfile, OfANetThatIsNoChainHasItWhole) {
  run_of(plugin_flag("nets") + "--model mnist-example", "--profile --max-steps 15").with_code(0);
  const std::vector<LayerCosts> chain = profile().ranks.at(0).chain;
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_EQ(chain[0].name, "net");
  EXPECT_EQ(chain[0].output_bytes, 4 * kBatch * 10);
  EXPECT_FALSE(chain[0].parameter_bytes.empty());
  EXPECT_GT(chain[0].backward_weight, 0);
}

TEST_F(TrainProfile, OfANetThatCannotBeCopiedLacksTheChainAlone) {
  const auto ended = run_of(plugin_flag("layers") + "--model growing", "--profile --max-steps 15");
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(
      ended.err, HasSubstr("the profile has no costs of layers: clone: the module differs"));
  const RunProfile found = profile();
  expect_phases_add_up(found);
  EXPECT_TRUE(found.ranks.at(0).chain.empty());
}

TEST_F(TrainProfile, BeginsAfterAWarmUp) {
  const auto ended = run("--profile --max-steps 3").with_code(0);
  EXPECT_THAT(ended.err, HasSubstr("no profile: it begins after 3 steps"));
  EXPECT_FALSE(std::filesystem::exists(output() + "/profile"));
}

TEST_F(TrainProfile, IsMadeOnlyIfAskedAndReplacedWithItsRun) {
  ASSERT_EQ(run("--profile --max-steps 5").code(), 0);
  ASSERT_TRUE(std::filesystem::exists(output() + "/profile/trace.json"));
  EXPECT_THAT(run("--max-steps 15 --overwrite").with_code(0).out, Not(HasSubstr("Profile")));
  EXPECT_FALSE(std::filesystem::exists(output() + "/profile"));
  EXPECT_FALSE(file("/summary.json").contains("profile"));
}

}  // namespace
}  // namespace lockstep::testing
