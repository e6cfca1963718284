#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "bench/studies/ddp_scaling/study.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench::ddp_scaling {
namespace {

class ScalingValues : public ::testing::Test {
 protected:
  // Half a second of checkpoint after each evaluation; the start took three.
  static std::string metrics_of(const std::vector<EpochSummary>& epochs) {
    std::string lines;
    double elapsed = 3;
    for (const EpochSummary& epoch : epochs) {
      elapsed += epoch.train_seconds + epoch.val_seconds.value_or(0);
      lines += json_line({.elapsed = elapsed, .epoch = epoch.epoch, .split = "val"}, utc_now());
      lines += "\n";
      elapsed += 0.5;
    }
    return lines;
  }

  std::map<std::string, double> values_of(const std::vector<EpochSummary>& epochs) const {
    RunSummary summary;
    summary.epochs = epochs;
    std::ofstream(folder_.path() / "summary.json") << to_json(summary);
    std::ofstream(folder_.path() / "metrics.jsonl") << metrics_of(epochs);
    return ddp_scaling::values_of(folder_.path());
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(ScalingValues, SumWholeEpochs) {
  std::vector<EpochSummary> epochs;
  for (int epoch = 1; epoch <= 10; ++epoch) {
    const double seconds = epoch == 1 ? 60 : 50 + (epoch % 2 == 0 ? 1 : -1);
    epochs.push_back({.epoch = epoch,
        .train_seconds = seconds,
        .train_loss = 4,
        .samples = 50048,
        .val_seconds = 6,
        .val_samples = 10000});
  }
  const auto found = values_of(epochs);
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 1) << "ranks repeat some images";
  EXPECT_NEAR(found.at("run_seconds"), 60 + 5 * 51 + 4 * 49, 1e-9);
  EXPECT_NEAR(found.at("trained_seconds"), found.at("run_seconds"), 1e-9);
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 60);
  EXPECT_DOUBLE_EQ(found.at("evaluation_seconds"), 6);
  EXPECT_NEAR(found.at("checkpoint_seconds"), 0.5, 1e-9);
  EXPECT_NEAR(found.at("whole_seconds"), found.at("run_seconds") + 65, 1e-9);
}

TEST_F(ScalingValues, ExtrapolateThePartThatWasMeasured) {
  const auto found = values_of(
      {{.epoch = 1, .train_seconds = 5, .samples = 500, .val_seconds = 0.75, .val_samples = 1000},
          {.epoch = 2,
              .train_seconds = 2,
              .train_loss = 4.5,
              .samples = 500,
              .val_seconds = 0.25,
              .val_samples = 1000}});
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 0.01);
  EXPECT_DOUBLE_EQ(found.at("epoch_seconds"), 200);
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 203);
  EXPECT_DOUBLE_EQ(found.at("run_seconds"), 203 + 9 * 200);
  EXPECT_DOUBLE_EQ(found.at("trained_seconds"), 7);
  EXPECT_DOUBLE_EQ(found.at("samples_per_s"), 250);
  EXPECT_DOUBLE_EQ(found.at("train_loss"), 4.5);
  EXPECT_DOUBLE_EQ(found.at("evaluation_seconds"), 5) << "half a second for a tenth";
  EXPECT_DOUBLE_EQ(found.at("evaluated_images"), 1000);
  EXPECT_NEAR(found.at("between_seconds"), 1 + 2 * 0.5, 1e-9);
  EXPECT_NEAR(found.at("whole_seconds"), 203 + 9 * 200 + 10 * 5.5, 1e-9);
}

TEST_F(ScalingValues, AreNotThoseOfOneEpoch) {
  EXPECT_THROW(values_of({{.epoch = 1, .train_seconds = 5, .samples = 500}}), DataError);
}

TEST_F(ScalingValues, AreNotThoseWithoutEvaluations) {
  const EpochSummary first{.epoch = 1, .train_seconds = 5, .samples = 500};
  EpochSummary second = first;
  second.epoch = 2;
  EXPECT_THROW(values_of({first, second}), DataError);
}

}  // namespace
}  // namespace lockstep::bench::ddp_scaling
