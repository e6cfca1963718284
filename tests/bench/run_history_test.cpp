#include "lockstep/record/run_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/metric_lines.h"

namespace lockstep::bench {
namespace {

using testing::evaluation_line;
using testing::train_line;

RunHistory history_of(const std::string& text) {
  return run_history(parse_metrics(text, "m").lines);
}

TEST(RunHistory, IsEmptyWithoutRecords) {
  EXPECT_TRUE(history_of("").epochs.empty());
  EXPECT_FALSE(history_of("").samples_per_s);
}

TEST(RunHistory, WeighsIntervalsByTheirSteps) {
  const auto run = history_of(
      train_line(0, 1, 3, 1.0, 1) + train_line(0, 1, 4, 2.0, 2) +
      evaluation_line(0, 1, 4, "val", 0.5, 0.75) + evaluation_line(0, 1, 4, "val-ema", 0.4, 0.8) +
      train_line(0, 2, 8, 3.0, 3) + evaluation_line(0, 2, 8, "test", 0.3, 0.9));
  ASSERT_EQ(run.epochs.size(), 2U);
  const EpochHistory& epoch = run.epochs[0];
  EXPECT_DOUBLE_EQ(epoch.train_loss.value(), 1.25);
  EXPECT_EQ(epoch.step, 4);
  EXPECT_DOUBLE_EQ(epoch.val.loss.value(), 0.5);
  EXPECT_DOUBLE_EQ(epoch.val.top1.value(), 0.75);
  EXPECT_DOUBLE_EQ(epoch.ema.top1.value(), 0.8);
  EXPECT_DOUBLE_EQ(epoch.lr.value(), 0.1);
  EXPECT_DOUBLE_EQ(epoch.seconds.value(), 2);
  EXPECT_FALSE(run.epochs[1].val.loss);
  EXPECT_DOUBLE_EQ(run.test.top1.value(), 0.9);
  EXPECT_DOUBLE_EQ(run.seconds, 4);
  EXPECT_DOUBLE_EQ(run.samples_per_s.value(), 100);
  EXPECT_TRUE(run.restarts.empty());
}

TEST(RunHistory, MakesOneCurveOverRestarts) {
  const auto run = history_of(train_line(0, 1, 2, 1.0, 1) + train_line(0, 1, 4, 2.0, 2) +
                              train_line(0, 2, 6, 9.0, 3) + train_line(0, 2, 8, 9.0, 4) +
                              train_line(1, 2, 6, 3.0, 10) + train_line(1, 2, 8, 4.0, 11) +
                              train_line(3, 3, 10, 5.0, 20));
  ASSERT_EQ(run.epochs.size(), 3U);
  EXPECT_DOUBLE_EQ(run.epochs[1].train_loss.value(), 3.5);
  EXPECT_DOUBLE_EQ(run.seconds, 5) << "steps made twice count once";
  ASSERT_EQ(run.restarts.size(), 2U);
  EXPECT_EQ(run.restarts[0].restart, 1);
  EXPECT_EQ(run.restarts[0].epoch, 2);
  EXPECT_EQ(run.restarts[0].step, 6);
  EXPECT_EQ(run.restarts[0].made_again, 2);
  EXPECT_EQ(run.restarts[0].furthest_step, 8);
  EXPECT_DOUBLE_EQ(run.restarts[0].gap.value(), 6);
  EXPECT_EQ(run.restarts[1].restart, 3);
  EXPECT_EQ(run.restarts[1].made_again, 0);
  EXPECT_EQ(run.restarts[1].furthest_step, 8);
}

// Records at 90 and 120 cover what that of step 100 says.
TEST(RunHistory, DropsWhatALaterLifeLoggedAtOtherSteps) {
  const auto run = history_of(train_line(0, 1, 50, 1.0, 1) + train_line(0, 1, 100, 7.0, 2) +
                              train_line(1, 1, 90, 2.0, 3) + train_line(1, 1, 120, 3.0, 4));
  EXPECT_NEAR(run.epochs.at(0).train_loss.value(), (50 * 1.0 + 40 * 2.0 + 30 * 3.0) / 120, 1e-12);
}

TEST(RunHistory, DoesNotCountTheStepOfAnEvaluationAsMadeAgain) {
  const auto run =
      history_of(train_line(0, 1, 4, 1.0, 1) + evaluation_line(1, 1, 4, "val", 0.5, 0.75) +
                 train_line(1, 2, 8, 1.0, 5));
  EXPECT_EQ(run.restarts.at(0).made_again, 0);
}

TEST(RunHistory, TakesTheLowestRank) {
  std::string other = train_line(0, 1, 4, 9.0, 1);
  other.replace(other.find("\"rank\":0"), 8, "\"rank\":1");
  const auto run = history_of(other + train_line(0, 1, 4, 1.0, 1));
  EXPECT_DOUBLE_EQ(run.epochs.at(0).train_loss.value(), 1.0);
}

}  // namespace
}  // namespace lockstep::bench
