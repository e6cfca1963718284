#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/bench/studies/ddp_scaling/study.h"
#include "lockstep/core/error.h"
#include "lockstep/train/record/summary.h"

namespace lockstep::bench::ddp_scaling {
namespace {

class ScalingValues : public ::testing::Test {
 protected:
  std::map<std::string, double> values_of(const std::vector<EpochSummary>& epochs) const {
    RunSummary summary;
    summary.epochs = epochs;
    std::ofstream(folder_.path() / "summary.json") << to_json(summary);
    return ddp_scaling::values_of(folder_.path());
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(ScalingValues, SumWholeEpochs) {
  std::vector<EpochSummary> epochs;
  for (int epoch = 1; epoch <= 10; ++epoch) {
    const double seconds = epoch == 1 ? 60 : 50 + (epoch % 2 == 0 ? 1 : -1);
    epochs.push_back({.epoch = epoch, .train_seconds = seconds, .train_loss = 4, .samples = 50048});
  }
  const auto found = values_of(epochs);
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 1) << "ranks repeat some images";
  EXPECT_NEAR(found.at("run_seconds"), 60 + 5 * 51 + 4 * 49, 1e-9);
  EXPECT_NEAR(found.at("trained_seconds"), found.at("run_seconds"), 1e-9);
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 60);
}

TEST_F(ScalingValues, ExtrapolateThePartThatWasMeasured) {
  const auto found = values_of({{.epoch = 1, .train_seconds = 5, .samples = 500},
      {.epoch = 2, .train_seconds = 2, .train_loss = 4.5, .samples = 500}});
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 0.01);
  EXPECT_DOUBLE_EQ(found.at("epoch_seconds"), 200);
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 203);
  EXPECT_DOUBLE_EQ(found.at("run_seconds"), 203 + 9 * 200);
  EXPECT_DOUBLE_EQ(found.at("trained_seconds"), 7);
  EXPECT_DOUBLE_EQ(found.at("samples_per_s"), 250);
  EXPECT_DOUBLE_EQ(found.at("train_loss"), 4.5);
}

TEST_F(ScalingValues, AreNotThoseOfOneEpoch) {
  EXPECT_THROW(values_of({{.epoch = 1, .train_seconds = 5, .samples = 500}}), DataError);
}

}  // namespace
}  // namespace lockstep::bench::ddp_scaling
