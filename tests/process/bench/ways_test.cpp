// Runs `lockstep bench ways` on a net of a user's own that is no chain.

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class BenchWays : public ::testing::Test {
 protected:
  std::string line(const std::string& model, const std::string& flags) const {
    return concat("bench ways --plugin ", LOCKSTEP_PLUGINS, "/nets.so --model ", model,
        " --batch 16 --places 1,2 --output ", output(), " ", set_.flag(), " ", flags);
  }

  static Ended bench(const std::string& line) { return run_command(words(line)); }

  std::string output() const { return folder_.file("out"); }

  std::vector<nlohmann::json> samples() const { return json_lines(output() + "/samples.jsonl"); }

  // Whether the run that shows how long others should be has made steps.
  bool has_trial_steps() const {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(output() + "/runs/ways", none))
      if (std::filesystem::exists(entry.path() / "metrics.jsonl")) return true;
    return false;
  }

  IdxFiles set_{64, 32};
  TemporaryFolder folder_;
};

TEST_F(BenchWays, MeasuresWhatTheNetAllowsAndSaysWhatItDoesNot) {
  const std::string asked = line("mnist-example", "--ways dp,ddp,pp --rounds 1 --budget 5m");
  const Ended ended = bench(asked).with_code(0);
  std::vector<std::string> measured, refused;
  for (const auto& sample : samples()) {
    const bool has_rate = sample["values"].contains("samples_per_s");
    (has_rate ? measured : refused).push_back(sample["settings"]["way"]);
  }
  EXPECT_THAT(measured, UnorderedElementsAre("dp", "ddp"));
  EXPECT_THAT(refused, UnorderedElementsAre("pp"));
  EXPECT_THAT(ended.out, HasSubstr("Left out: pp on 2 places"));
  EXPECT_THAT(ended.out, HasSubstr("make it a torch::nn::Sequential"));
  EXPECT_THAT(contents(output() + "/report.md"), HasSubstr("Images a second"));
  EXPECT_TRUE(std::filesystem::exists(output() + "/figures/ways-rate.svg"));
  bench(asked).with_code(0);
  EXPECT_EQ(samples().size(), 3U) << "nothing is made again";
  EXPECT_EQ(bench(line("chain", "--ways dp,ddp,pp")).code(), 2) << "another grid";
}

TEST_F(BenchWays, GoesOnThatWasStoppedBeforeItsFirstSample) {
  const std::string asked = line("chain", "--ways dp,ddp --rounds 1");
  Command run(words(asked));
  run.wait_until([&] { return has_trial_steps(); });
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code(), 128 + SIGTERM);
  EXPECT_TRUE(processes_with(output()).empty());
  EXPECT_TRUE(std::filesystem::exists(output() + "/bench.json")) << "it has begun";
  bench(asked).with_code(0);
  ASSERT_EQ(samples().size(), 2U);
  for (const auto& sample : samples()) EXPECT_GT(sample["values"]["samples_per_s"], 0) << sample;
}

TEST_F(BenchWays, MeasuresReplicasOfStages) {
  const Ended ended = bench(line("chain", "--ways ddp+mp,ddp+pp --places 2,4 --rounds 1"));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  std::vector<std::string> measured;
  for (const auto& sample : samples()) {
    const bool has_rate = sample["values"].contains("samples_per_s");
    EXPECT_EQ(has_rate, sample["places"] == 4) << sample;
    if (!has_rate) continue;
    measured.push_back(sample["settings"]["way"]);
    EXPECT_EQ(sample["settings"]["stages"], "2");
    EXPECT_EQ(sample["oversubscribed"], usable_cpu_count() < 4);
  }
  EXPECT_THAT(measured, UnorderedElementsAre("ddp+mp", "ddp+pp"));
  EXPECT_THAT(ended.out, HasSubstr("ddp+pp on 4 places (2 x 2 stages)"));
  EXPECT_THAT(ended.out, HasSubstr("2 places cannot be several replicas of several stages each"));
}

TEST_F(BenchWays, TrainsWithTheFlagsThatFollow) {
  const std::string asked = line("chain", "--ways ddp --rounds 1 -- --opt sgd --lr=0.1");
  const Ended ended = bench(asked).with_code(0);
  ASSERT_EQ(samples().size(), 1U);
  EXPECT_GT(samples()[0]["values"]["samples_per_s"], 0);
  EXPECT_THAT(samples()[0]["command"].dump(), HasSubstr(R"("--opt","sgd","--lr","0.1",)"));
  EXPECT_THAT(ended.out, HasSubstr("trained with --opt sgd --lr 0.1"));
  EXPECT_THAT(ended.out, HasSubstr("Train with: "));
  EXPECT_EQ(bench(asked).code(), 0) << "it goes on";
  const Ended other = bench(line("chain", "--ways ddp --rounds 1 -- --opt adam")).with_code(2);
  EXPECT_THAT(other.err, HasSubstr("-- --opt adam' now"));
  EXPECT_EQ(samples().size(), 1U);
}

TEST_F(BenchWays, RefusesBadFlagsBeforeAnythingRuns) {
  struct Bad {
    std::string flags, named;
  };
  for (const auto& [bad, named] : {Bad{"--precision bf16", "bf16"}, Bad{"--schedule gpip", "gpip"},
           Bad{"--ways ddq", "ddq"}, Bad{"--batch 1k", "1k"}, Bad{"--places 0", "0"},
           Bad{"-- --opt sdg", "sdg"}, Bad{"-- --batch-size 3", "--batch-size cannot follow --"}}) {
    const Ended ended = bench(line("chain", bad));
    EXPECT_EQ(ended.code(), 2) << bad;
    EXPECT_THAT(ended.err, HasSubstr(named)) << bad;
    EXPECT_FALSE(std::filesystem::exists(output())) << bad;
  }
}

TEST_F(BenchWays, BeginsNothingThatCannotBeTrained) {
  const Ended unknown = bench(line("chian", "")).with_code(2);
  EXPECT_THAT(unknown.err, HasSubstr("no cell can be trained: "));
  EXPECT_THAT(unknown.err, HasSubstr("mnist-example, chain"));
  EXPECT_FALSE(std::filesystem::exists(output())) << "the next try may take the name";
  const Ended missing = bench(line("chain", "--data mnist:/nowhere"));
  EXPECT_EQ(missing.code(), 2) << "one set";
  std::filesystem::remove(set_.file("train-labels-idx1-ubyte"));
  EXPECT_EQ(bench(line("chain", "")).code(), 3);
}

}  // namespace
}  // namespace lockstep::testing
