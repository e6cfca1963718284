// Trains in float16 by every way of spreading a model.

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "tests/process/train_command.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;
using Json = nlohmann::json;

struct Way {
  std::string name;
  Words words;
};

struct PrecisionRun {
  Ended ended;
  std::vector<Json> steps;  // lines of metrics.jsonl
  Json summary;
};

class TrainPrecision : public ::testing::TestWithParam<Way> {
 protected:
  // The toy net on its one batch: a CPU without instructions for float16 takes seconds for a step
  // of convolutions.
  static PrecisionRun run(const Words& words) {
    const TemporaryFolder folder;
    const std::string output = folder.str() + "/run";
    Words all = {"--model",        "toy", "--data",      "mock", "--output", output,
                 "--log-interval", "1",   "--max-steps", "100",  "--lr",     "0.05"};
    all.insert(all.end(), words.begin(), words.end());
    PrecisionRun result{.ended = train(all), .steps = {}, .summary = {}};
    if (result.ended.code != 0) return result;
    std::ifstream file(output + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto object = Json::parse(line);
      if (object["split"] == "train") result.steps.push_back(object);
    }
    result.summary = Json::parse(contents(output + "/summary.json"));
    return result;
  }
};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double mean_loss(const PrecisionRun& run, std::size_t first, std::size_t last) {
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += run.steps[i]["loss"].get<double>();
  return sum / static_cast<double>(last - first);
}

// As in fp32 but for the rounding, and it learns.
TEST_P(TrainPrecision, Float16LearnsAsFloat32) {
  const PrecisionRun half =
      run(with(GetParam().words, {"--precision", "16-mixed", "--clip-grad", "5"}));
  ASSERT_EQ(half.ended.code, 0) << half.ended.err;
  const PrecisionRun full = run(with(GetParam().words, {"--clip-grad", "5"}));
  ASSERT_EQ(half.steps.size(), 100U);
  EXPECT_THAT(half.ended.err, HasSubstr("warning: --precision 16-mixed is for GPUs"));
  for (std::size_t i = 0; i < 20; ++i) {
    const double expected = full.steps[i]["loss"];
    EXPECT_NEAR(half.steps[i]["loss"].get<double>(), expected, 0.02) << i;
  }
  EXPECT_LT(mean_loss(half, 80, 100), mean_loss(half, 0, 20) - 0.1);
  EXPECT_EQ(half.summary["precision"], "16-mixed");
  EXPECT_EQ(half.summary["skipped_steps"], 0);
  EXPECT_EQ(half.steps.back()["loss_scale"], 65536);
  EXPECT_FALSE(full.steps.back().contains("loss_scale"));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, TrainPrecision,
    ::testing::Values(
        Way{"Serial", {"--batch-size", "128"}},
        Way{"DataParallel", {"--parallel", "dp", "--places", "2", "--batch-size", "64"}},
        Way{"Ddp", {"--parallel", "ddp", "--nproc-per-node", "2", "--batch-size", "64"}},
        Way{"Pipeline", {"--parallel", "pp", "--places", "2", "--batch-size", "128"}},
        Way{"PipelineOverRanks",
            {"--parallel", "pp", "--nproc-per-node", "2", "--batch-size", "128"}}),
    [](const auto& test) { return test.param.name; });

// A processor as the test wants it, for the programs that it starts.
class Processor {
 public:
  explicit Processor(const char* features) { set(features); }
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;
  ~Processor() { ::unsetenv(kVariable); }
  static void set(const char* features) { ::setenv(kVariable, features, 1); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_TEST_CPU_FEATURES";
};

class AutoPrecision : public ::testing::Test {
 protected:
  Ended run(const Words& more) const {
    return train(with(
        {"--model", "toy", "--data", "mock", "--output", folder_.str() + "/run", "--max-steps", "2"},
        more));
  }
  Json summary() const { return Json::parse(contents(folder_.str() + "/run/summary.json")); }

  const TemporaryFolder folder_;
};

TEST_F(AutoPrecision, FollowsTheProcessorAndIsSaid) {
  const Processor fast("fpu avx512_bf16");
  const Ended ended = run({"--precision", "auto", "--nproc-per-node", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(summary()["precision"], "bf16-mixed");
  EXPECT_EQ(summary()["precision_asked"], "auto");
  EXPECT_THAT(ended.err.substr(0, ended.err.find('\n')), HasSubstr("bf16-mixed (auto)"));
}

TEST_F(AutoPrecision, AResumeOnAnotherProcessorKeepsThePrecision) {
  const Processor slow("fpu avx2");
  ASSERT_EQ(run({"--precision", "auto"}).code, 0);
  EXPECT_EQ(summary()["precision"], "32");
  Processor::set("fpu amx_bf16");
  const Ended ended = run({"--precision", "auto", "--resume", "auto", "--max-steps", "4"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(summary()["precision"], "32");
  EXPECT_EQ(summary()["steps"], 4);
}

TEST_F(AutoPrecision, WhatIsSlowerIsSaid) {
  const Processor fast("fpu amx_bf16");
  const Ended hinted = run({"--nproc-per-node", "2"});
  EXPECT_THAT(hinted.err, HasSubstr("--precision bf16-mixed (or auto) is usually faster"));
  EXPECT_EQ(summary()["precision"], "32");
  EXPECT_FALSE(summary().contains("precision_asked"));
  std::filesystem::remove_all(folder_.str() + "/run");
  Processor::set("fpu avx2");
  const Ended slow = run({"--precision", "bf16-mixed"});
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_THAT(slow.err, HasSubstr("about 5 times slower"));
}

}  // namespace
}  // namespace lockstep::testing
