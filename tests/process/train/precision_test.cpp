// Trains in float16 by every way of spreading a model.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdlib.h>
#include <string>

#include "tests/process/train/trained_run.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// The toy net on its one batch: a CPU without instructions for float16 takes seconds for a step of
// convolutions.
TrainedRun run_toy(const std::string& flags) {
  return trained_run(flags + " --model toy --data mock --max-steps 100 --lr 0.05 --clip-grad 5");
}

double mean(const std::vector<double>& values, std::ptrdiff_t first, std::ptrdiff_t last) {
  const double sum = std::accumulate(values.begin() + first, values.begin() + last, 0.0);
  return sum / static_cast<double>(last - first);
}

class TrainPrecision : public ::testing::TestWithParam<TrainWay> {};

// As in fp32 but for the rounding, and it learns.
TEST_P(TrainPrecision, Float16LearnsAsFloat32) {
  const TrainedRun half = run_toy(GetParam().flags + " --precision 16-mixed");
  const TrainedRun full = run_toy(GetParam().flags);
  const auto losses = half.losses(), expected = full.losses();
  ASSERT_EQ(losses.size(), 100U);
  EXPECT_THAT(half.ended.err, HasSubstr("warning: --precision 16-mixed is for GPUs"));
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(losses[i], expected[i], 0.02) << i;
  EXPECT_LT(mean(losses, 80, 100), mean(losses, 0, 20) - 0.1);
  EXPECT_EQ(half.summary["precision"], "16-mixed");
  EXPECT_EQ(half.summary["skipped_steps"], 0);
  EXPECT_EQ(half.values("train", "loss_scale").back(), 65536);
  for (const auto& record : full.records) EXPECT_FALSE(record.contains("loss_scale"));
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainPrecision,
    ::testing::Values(TrainWay{"Serial", "--batch-size 128"},
        TrainWay{"DataParallel", "--parallel dp --places 2 --batch-size 64"},
        TrainWay{"Ddp", "--parallel ddp --nproc-per-node 2 --batch-size 64"},
        TrainWay{"Pipeline", "--parallel pp --places 2 --batch-size 128"},
        TrainWay{"PipelineOverRanks", "--parallel pp --nproc-per-node 2 --batch-size 128"}),
    [](const auto& test) { return test.param.name; });

// The speed of bfloat16 that the programs of the test take theirs to have.
class Processor {
 public:
  explicit Processor(const char* speed) : before_(environment(kVariable)) { set(speed); }
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;
  ~Processor() {
    if (before_) {
      set(before_->c_str());
    } else {
      ::unsetenv(kVariable);
    }
  }
  static void set(const char* speed) { ::setenv(kVariable, speed, 1); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_TEST_BF16_SPEED";

  std::optional<std::string> before_;
};

class AutoPrecision : public ::testing::Test {
 protected:
  Ended run(const std::string& flags) const {
    return train("--model toy --data mock --max-steps 2 --output " + output() + " " + flags);
  }
  std::string output() const { return folder_.file("run"); }
  nlohmann::json summary() const {
    return nlohmann::json::parse(contents(output() + "/summary.json"));
  }

  const TemporaryFolder folder_;
};

TEST_F(AutoPrecision, FollowsTheProcessorAndIsReported) {
  const Processor fast("2.5");
  const Ended ended = run("--precision auto --nproc-per-node 2").with_code(0);
  EXPECT_EQ(summary()["precision"], "bf16-mixed");
  EXPECT_EQ(summary()["precision_asked"], "auto");
  EXPECT_THAT(ended.err.substr(0, ended.err.find('\n')), HasSubstr("bf16-mixed (auto)"));
}

TEST_F(AutoPrecision, AResumeOnAnotherProcessorKeepsThePrecision) {
  const Processor slow("1.9");
  ASSERT_EQ(run("--precision auto").code(), 0);
  EXPECT_EQ(summary()["precision"], "32");
  Processor::set("8");
  run("--precision auto --resume auto --max-steps 4").with_code(0);
  EXPECT_EQ(summary()["precision"], "32");
  EXPECT_EQ(summary()["steps"], 4);
}

TEST_F(AutoPrecision, TheSlowerChoiceIsReported) {
  const Processor fast("8");
  const Ended hinted = run("--nproc-per-node 2");
  EXPECT_THAT(hinted.err, HasSubstr("--precision bf16-mixed (or auto) is usually faster"));
  EXPECT_EQ(summary()["precision"], "32");
  EXPECT_FALSE(summary().contains("precision_asked"));
  std::filesystem::remove_all(output());
  Processor::set("0.2");
  const Ended slow = run("--precision bf16-mixed").with_code(0);
  EXPECT_THAT(slow.err, HasSubstr("multiplies in bfloat16 only 0.2 times as fast as in float32"));
}

}  // namespace
}  // namespace lockstep::testing
