#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/studies/data_parallel/study.h"
#include "bench/study/run_files.h"
#include "lockstep/core/error.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench::data_parallel {
namespace {

using ::testing::HasSubstr;

class EpochValues : public ::testing::Test {
 protected:
  void write(const std::vector<EpochSummary>& epochs) const {
    RunSummary summary;
    summary.epochs = epochs;
    summary.test.top1 = 0.875;
    std::ofstream(folder_.path() / "summary.json") << to_json(summary);
  }

  std::map<std::string, double> values(std::int64_t images) const {
    return values_of(folder_.path(), images);
  }

  std::string refusal() const {
    return lockstep::testing::message_of<DataError>([&] { values(1000); });
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(EpochValues, AreThoseOfWholeEpochs) {
  write({{.epoch = 1, .train_seconds = 3, .train_loss = 0.5, .samples = 1000},
      {.epoch = 2, .train_seconds = 2, .train_loss = 0.25, .samples = 1000}});
  const auto found = values(1000);
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 3);
  EXPECT_DOUBLE_EQ(found.at("second_epoch_seconds"), 2);
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 1);
  EXPECT_DOUBLE_EQ(found.at("samples_per_s"), 500);
  EXPECT_DOUBLE_EQ(found.at("train_loss"), 0.25);
  EXPECT_DOUBLE_EQ(found.at("test_accuracy"), 0.875);
  EXPECT_DOUBLE_EQ(values(998).at("epoch_share"), 1) << "ranks repeat some images";
}

TEST_F(EpochValues, ExtrapolateThePartThatWasMeasured) {
  write({{.epoch = 1, .train_seconds = 3, .samples = 250},
      {.epoch = 2, .train_seconds = 2, .samples = 250}});
  const auto found = values(1000);
  EXPECT_DOUBLE_EQ(found.at("epoch_share"), 0.25);
  EXPECT_DOUBLE_EQ(found.at("second_epoch_seconds"), 8);
  // What starting took longer is paid once, however long the epoch is.
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 9);
}

TEST_F(EpochValues, SayWhatIsMissing) {
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
  write({{.epoch = 1, .train_seconds = 3, .samples = 1000}});
  EXPECT_THAT(refusal(), HasSubstr("summary.json: has no time of epoch 2"));
  std::ofstream(folder_.path() / "summary.json") << "{";
  EXPECT_THAT(refusal(), HasSubstr("summary.json"));
}

TEST(TrainingImages, RefusesWhatItCannotCount) {
  EXPECT_THROW(training_images("cifar10:/nowhere"), InvalidArgument);
  EXPECT_THROW(training_images("mnist"), InvalidArgument);
  EXPECT_THROW(training_images("mnist:"), InvalidArgument);
  EXPECT_THROW(training_images("mnist:/nowhere"), DataError);
}

}  // namespace
}  // namespace lockstep::bench::data_parallel
