#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/studies/scale_out/study.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep::bench::scale_out {
namespace {

using ::testing::HasSubstr;

/// Writes the folder of a run that trained for ten seconds.
class NodeValues : public ::testing::Test {
 protected:
  NodeValues() {
    summary_.world_size = 2;
    summary_.batch_size = 32;
    summary_.steps = 5;
    summary_.stopped_by = "time";
    summary_.best = BestEpoch{2, 2.25};
    summary_.test = {.loss = 2.75, .top1 = 0.0625};
    summary_.best_test = {.loss = 2.5, .top1 = 0.125};
    summary_.epochs = {{.epoch = 1, .train_seconds = 3}, {.epoch = 2, .train_seconds = 3},
        {.epoch = 3, .train_seconds = 1.5}};
    std::ofstream(folder_.path() / "model.safetensors") << "weights";
  }

  // The clock on the wall stood at `wall` seconds.
  void add(MetricRecord record, int wall) {
    char time[32];
    std::snprintf(time, sizeof time, "2026-01-31T00:00:%02d.000Z", wall);
    record.lr = 1e-4;
    metrics_ += json_line(record, time) + "\n";
  }

  void add_line(
      const char* split, double elapsed, std::int64_t step, double loss, int restart, int wall) {
    add({.elapsed = elapsed,
            .restart = restart,
            .epoch = (step + 1) / 2,
            .step = step,
            .split = split,
            .scores = {.loss = loss},
            .step_ms = 1500},
        wall == 0 ? static_cast<int>(elapsed) : wall);
  }

  void add_train(double elapsed, std::int64_t step, double loss, int restart = 0, int wall = 0) {
    add_line("train", elapsed, step, loss, restart, wall);
  }

  void add_val(double elapsed, std::int64_t step, double loss, int restart = 0, int wall = 0) {
    add_line("val", elapsed, step, loss, restart, wall);
  }

  // Two whole epochs of two steps, and one step of the third.
  void add_whole_run() {
    add_train(2, 1, 3.0);
    add_train(4, 2, 2.8);
    add_val(4.4, 2, 2.7);
    add_train(6, 3, 2.6);
    add_train(8, 4, 2.4);
    add_val(8.4, 4, 2.25);
    add_train(10.1, 5, 2.3);
    add_val(10.6, 5, 2.3);
  }

  std::map<std::string, double> values(bool killed = false) const {
    std::ofstream(folder_.path() / "summary.json") << to_json(summary_);
    std::ofstream(folder_.path() / "metrics.jsonl") << metrics_;
    return values_of({.nodes = 2, .killed = killed, .budget_seconds = 10}, folder_.path());
  }

  std::string refusal(bool killed = false) const {
    return lockstep::testing::message_of<DataError>([&] { values(killed); });
  }

  lockstep::testing::TemporaryFolder folder_;
  RunSummary summary_;
  std::string metrics_;
};

TEST_F(NodeValues, AreTheStudysRows) {
  add_whole_run();
  const auto found = values();
  EXPECT_DOUBLE_EQ(found.at("learning_rate"), 1e-4);
  EXPECT_DOUBLE_EQ(found.at("global_batch"), 64);
  EXPECT_DOUBLE_EQ(found.at("steps_an_epoch"), 2);
  EXPECT_DOUBLE_EQ(found.at("epoch_seconds"), 3.95)
      << "with its validation, without the half second before the first step";
  EXPECT_DOUBLE_EQ(found.at("epochs"), 2.5) << "the clock cut the third";
  EXPECT_DOUBLE_EQ(found.at("step_seconds"), 1.5);
  EXPECT_DOUBLE_EQ(found.at("best_val_loss"), 2.25);
  EXPECT_DOUBLE_EQ(found.at("test_loss"), 2.5);
  EXPECT_DOUBLE_EQ(found.at("test_accuracy"), 0.125);
  EXPECT_DOUBLE_EQ(found.at("model_bytes"), 7);
  EXPECT_EQ(found.count("lost_seconds"), 0U);
}

TEST_F(NodeValues, KeepTheCurvesByTheShareOfTheTime) {
  add_whole_run();
  const auto found = values();
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_020"), 3.0);
  EXPECT_EQ(found.count("train_loss_at_025"), 0U) << "no line was written then";
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_080"), 2.4);
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_100"), 2.3) << "the step that the clock found running";
  EXPECT_EQ(found.count("val_loss_at_040"), 0U) << "nothing was validated yet";
  EXPECT_DOUBLE_EQ(found.at("val_loss_at_045"), 2.7);
  EXPECT_DOUBLE_EQ(found.at("val_loss_at_080"), 2.7);
  EXPECT_DOUBLE_EQ(found.at("val_loss_at_085"), 2.25);
  EXPECT_DOUBLE_EQ(found.at("val_loss_at_100"), 2.3);
}

TEST_F(NodeValues, AShareOfTheTimeHasTheMeanOverItsSteps) {
  add_train(0.1, 1, 4.0);
  add_train(0.4, 4, 2.0);  // a line for three steps
  add_val(10.2, 4, 2.0);
  EXPECT_DOUBLE_EQ(values().at("train_loss_at_005"), 2.5);
}

TEST_F(NodeValues, OfNoWholeEpochHaveNoEpochTime) {
  add_train(9, 1, 3.0);
  add_val(11, 1, 3.0);
  const auto found = values();
  EXPECT_EQ(found.count("epoch_seconds"), 0U);
  EXPECT_EQ(found.count("epochs"), 0U);
  EXPECT_DOUBLE_EQ(found.at("steps"), 5);
}

TEST_F(NodeValues, SayWhatADeathCost) {
  add_train(2, 1, 3.0);
  add_train(4, 2, 2.8);
  add_val(4.4, 2, 2.7);
  add_train(6, 3, 9.9);           // made again by the next attempt
  add_train(5.5, 3, 2.6, 1, 13);  // which began from a snapshot after 4.5 s
  add_train(7.5, 4, 2.4, 1, 15);
  add_val(8, 4, 2.25, 1, 16);
  add_train(10, 5, 2.3, 1, 18);
  add_val(10.5, 5, 2.3, 1, 18);
  summary_.restarts = 1;
  const auto found = values(true);
  EXPECT_DOUBLE_EQ(found.at("restarts"), 1);
  EXPECT_DOUBLE_EQ(found.at("killed_after_seconds"), 6);
  EXPECT_DOUBLE_EQ(found.at("made_again_seconds"), 0.5);
  EXPECT_DOUBLE_EQ(found.at("lost_seconds"), 7.5) << "18 - 2 on the wall, 10.5 - 2 in the run";
  EXPECT_DOUBLE_EQ(found.at("epoch_seconds"), 3.75);
  EXPECT_DOUBLE_EQ(found.at("train_loss_at_055"), 2.6);
  EXPECT_EQ(found.count("train_loss_at_060"), 0U) << "that step was made again";
}

TEST_F(NodeValues, RefuseARunThatDidNotEndAsItShould) {
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl"));
  add_whole_run();
  EXPECT_THAT(refusal(true), HasSubstr("never started again"));
  summary_.stopped_by = "epochs";
  EXPECT_THAT(refusal(), HasSubstr("ended by 'epochs', not by its time"));
  summary_.stopped_by = "time";
  summary_.steps = 0;
  EXPECT_THAT(refusal(), HasSubstr("not one step"));
}

}  // namespace
}  // namespace lockstep::bench::scale_out
