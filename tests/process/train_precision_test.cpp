// Trains in float16 by every way of spreading a model.

#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace lockstep::testing
