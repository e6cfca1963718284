#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/studies/throughput/study.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench::throughput {
namespace {

using ::testing::HasSubstr;

class StepValues : public ::testing::Test {
 protected:
  // A line of steps that took so long each, on 8 images.
  void line(std::int64_t step, double step_ms, const std::string& split = "train") const {
    const MetricRecord record{.step = step,
        .split = split,
        .scores = {.loss = 7},
        .samples_per_s = 8000 / step_ms,
        .step_ms = step_ms,
        .data_ms = step_ms / 10};
    std::ofstream(folder_.path() / "metrics.jsonl", std::ios::app)
        << json_line(record, utc_now()) << '\n';
  }

  void summary(std::int64_t skipped) const {
    RunSummary summary;
    summary.skipped_steps = skipped;
    std::ofstream(folder_.path() / "summary.json") << to_json(summary);
  }

  std::string refusal() const {
    return lockstep::testing::message_of<DataError>([&] { values_of(folder_.path()); });
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(StepValues, LeaveOutTheFirstLine) {
  line(1, 5000);
  line(2, 800);
  line(3, 1600);
  line(3, 100, "val");
  summary(1);
  const auto values = values_of(folder_.path());
  EXPECT_NEAR(values.at("seconds_a_sample"), 0.15, 1e-9);
  EXPECT_NEAR(values.at("samples_per_s"), 16 / 2.4, 1e-9);
  EXPECT_NEAR(values.at("first_step_seconds"), 5, 1e-9);
  EXPECT_EQ(values.at("timed_steps"), 2);
  EXPECT_NEAR(values.at("data_share"), 0.1, 1e-9);
  EXPECT_EQ(values.at("skipped_steps"), 1);
}

TEST_F(StepValues, WeighLinesByTheirSteps) {
  line(50, 1000);
  line(100, 800);
  line(110, 1600);
  summary(0);
  const auto values = values_of(folder_.path());
  EXPECT_NEAR(values.at("seconds_a_sample"), (50 * 0.8 + 10 * 1.6) / (60 * 8), 1e-9);
  EXPECT_EQ(values.at("timed_steps"), 60);
  EXPECT_NEAR(values.at("first_step_seconds"), 1, 1e-9);
}

TEST_F(StepValues, SayWhatIsMissing) {
  line(1, 800);
  summary(0);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has 1 lines of training; it takes two"));
  line(1, 800);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has no time of step 1"));
}

TEST_F(StepValues, NeedASummary) {
  line(1, 800);
  line(2, 800);
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
}

}  // namespace
}  // namespace lockstep::bench::throughput
