// Runs `lockstep collectives` as processes, as threads, and inside a launcher.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/process/command.h"

#include "bench/collectives/sweep.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CollectivesCommand : public ::testing::Test {
 protected:
  // Small enough for any machine.
  static Words sweep(const std::string& flags) {
    return words("collectives --max-bytes 16K --warmup 1 --iterations 2 " + flags);
  }

  std::string output() const { return folder_.file("sweep"); }

  std::vector<bench::SweepLine> results() const {
    return bench::read_sweep(output() + "/" + bench::kSweepFile);
  }

  TemporaryFolder folder_;
};

TEST_F(CollectivesCommand, MeasuresEveryCollectiveOverProcesses) {
  const Ended ended =
      run_command(sweep("--op all --nproc-per-node 2 --output " + output() + " --json"));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const auto lines = results();
  ASSERT_EQ(lines.size(), 6U * 3U * 2U) << "collectives, sizes, backends";
  std::set<std::string> seen;
  for (const auto& line : lines) {
    seen.insert(line.backend);
    EXPECT_EQ(line.ranks, 2);
    EXPECT_TRUE(line.checked);
    EXPECT_EQ(line.seconds.size(), 2U);
  }
  EXPECT_THAT(seen, UnorderedElementsAre("shm", "gloo"));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("bus [GB/s]"), HasSubstr("all_to_all")));
  const std::string& text = ended.out;
  const auto last = nlohmann::json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
  ASSERT_EQ(last["results"].size(), lines.size());
  EXPECT_EQ(last["results"][0].dump(), nlohmann::json::parse(to_json(lines[0])).dump());
}

TEST_F(CollectivesCommand, MeasuresThreadsOfOneProcess) {
  run_command(sweep("--backend threads --nproc-per-node 3 --output " + output())).with_code(0);
  const auto lines = results();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].ranks, 3);
  EXPECT_EQ(lines[0].backend, "threads");
  EXPECT_EQ(lines[0].bytes, 1020) << "whole numbers for three ranks";
}

TEST_F(CollectivesCommand, TakesTheRanksOfALauncher) {
  Words all{"run", "--nproc-per-node", "3", "--", built_lockstep()};
  for (const auto& word : sweep("--backend shm --output " + output())) all.push_back(word);
  run_command(all).with_code(0);
  ASSERT_EQ(results().size(), 3U);
  EXPECT_EQ(results()[0].ranks, 3);
}

// Two hosts with two ranks and one, by what they say of themselves.
TEST_F(CollectivesCommand, MeasuresRanksOfSeveralHosts) {
  std::string line = "LOCKSTEP_TEST_HOST=$((RANK / 2)) exec " + built_lockstep();
  for (const auto& word : sweep("--backend hierarchical --op all --output " + output()))
    line += " " + word;
  run_command({"run", "--nproc-per-node", "3", "--", "sh", "-c", line}).with_code(0);
  const auto lines = results();
  ASSERT_EQ(lines.size(), 6U * 3U) << "collectives, sizes";
  for (const auto& each : lines) {
    EXPECT_EQ(each.backend, "hierarchical");
    EXPECT_TRUE(each.checked);
  }
}

TEST_F(CollectivesCommand, RefusesBeforeItMeasures) {
  const auto refusal = [](const std::string& more) {
    return run_command(sweep(more)).with_code(2).err;
  };
  EXPECT_THAT(refusal("--nproc-per-node 1"), HasSubstr("one rank alone"));
  EXPECT_THAT(refusal("--backend threads,shm"), HasSubstr("threads"));
  EXPECT_THAT(refusal("--op all_reduced"), HasSubstr("did you mean all_reduce?"));
  std::filesystem::create_directories(output());
  std::ofstream(output() + "/" + bench::kSweepFile) << "old\n";
  EXPECT_THAT(refusal("--output " + output()), HasSubstr("holds results already"));
  EXPECT_EQ(contents(folder_.file("sweep/collectives.jsonl")), "old\n");
}

TEST_F(CollectivesCommand, HasAHelp) {
  EXPECT_THAT(run_command({"help", "collectives"}).with_code(0).out, HasSubstr("--max-bytes"));
}

}  // namespace
}  // namespace lockstep::testing
