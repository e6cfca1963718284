#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/studies/pipeline/study.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench::pipeline {
namespace {

using ::testing::HasSubstr;

class PipelineValues : public ::testing::Test {
 protected:
  // A line for each step.
  void write(const std::vector<double>& milliseconds, std::optional<std::int64_t> memory) const {
    std::ofstream metrics(folder_.path() / "metrics.jsonl");
    for (std::size_t i = 0; i < milliseconds.size(); ++i) {
      const MetricRecord record{.epoch = 1,
          .step = static_cast<std::int64_t>(i) + 1,
          .split = "train",
          .scores = {.loss = 7},
          .step_ms = milliseconds[i]};
      metrics << json_line(record, utc_now()) << "\n";
    }
    RunSummary summary;
    summary.peak_memory_bytes = memory;
    std::ofstream(folder_.path() / "summary.json") << to_json(summary) << "\n";
  }

  std::string refusal() const {
    return lockstep::testing::message_of<DataError>([&] { values_of(folder_.path(), 3); });
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(PipelineValues, AreThoseOfRunsAfterTheFirstStep) {
  // One to warm up, runs of 3 and of 5 seconds, one that is left over.
  write({9000, 1000, 500, 1500, 1000, 2000, 2000, 4000}, 5000000000);
  const auto values = values_of(folder_.path(), 3);
  EXPECT_DOUBLE_EQ(values.at("run_seconds"), 4);
  EXPECT_DOUBLE_EQ(values.at("run_variance"), 1);
  EXPECT_DOUBLE_EQ(values.at("repeats"), 2);
  EXPECT_DOUBLE_EQ(values.at("peak_memory_bytes"), 5e9);
}

TEST_F(PipelineValues, HaveNoMemoryWhereTheRunDidNotTell) {
  write({9000, 1000, 1000, 1000}, std::nullopt);
  EXPECT_TRUE(std::isnan(values_of(folder_.path(), 3).at("peak_memory_bytes")));
}

TEST_F(PipelineValues, SayWhatIsMissing) {
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl"));
  write({1000, 1000, 1000}, 1);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has fewer than 4 steps"));
  write({1000, 1000, 1000, 1000}, 1);
  EXPECT_NO_THROW(values_of(folder_.path(), 3));
  std::filesystem::remove(folder_.path() / "summary.json");
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
}

// With a longer interval a line is the mean of several steps, which are no longer told apart.
TEST_F(PipelineValues, NeedALineForEachStep) {
  write({1000, 1000, 1000, 1000}, 1);
  std::ofstream metrics(folder_.path() / "metrics.jsonl", std::ios::app);
  metrics << json_line({.epoch = 1, .step = 6, .split = "train", .step_ms = 1000}, utc_now());
  metrics << "\n";
  metrics.close();
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has no time of step 5"));
}

}  // namespace
}  // namespace lockstep::bench::pipeline
