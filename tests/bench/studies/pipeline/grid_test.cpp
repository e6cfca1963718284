#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "bench/studies/catalogue.h"
#include "bench/studies/pipeline/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::pipeline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Study pipeline(bool full, int cores, int rounds = 0) {
  return find_study("pipeline")
      ->make({.full = full, .cores = cores, .data = {}, .nodes = {}, .rounds = rounds});
}

const StudyCell& pipeline_cell_of(const Study& study, const std::string& id) {
  for (const StudyCell& each : study.cells) {
    if (each.id == id) return each;
  }
  throw InvalidArgument("no cell " + id);
}

TEST(PipelineGrid, IsTheStudysInFullWithTheSchedulesThatItLacks) {
  const Study whole = pipeline(true, 4);
  check_study(whole);
  std::set<std::string> ids;
  for (const StudyCell& each : whole.cells) ids.insert(each.id);
  for (const char* id : {"single-b120", "single-both-b120", "mp-b120"}) {
    EXPECT_THAT(ids, Contains(id));
  }
  for (const std::string way : {"gpipe", "1f1b", "interleaved", "zero-bubble", "single-micro"}) {
    for (const char* split : {"1", "3", "5", "8", "10", "12", "20", "40", "60"}) {
      EXPECT_THAT(ids, Contains(way + "-b120-s" + split));
    }
  }
  EXPECT_EQ(ids.size(), 3U + 5U * 9U);
  // Five rounds of two repeats are the study's ten, each of three batches, after one to warm up.
  EXPECT_EQ(whole.rounds, 5);
  EXPECT_THAT(pipeline_cell_of(whole, "gpipe-b120-s20").command,
      ElementsAre("train", "--model", "resnet50", "--data", "mock:fresh", "--num-classes", "1000",
          "--image-size", "128", "--batch-size", "120", "--opt", "sgd", "--momentum", "0", "--lr",
          "0.001", "--loss", "mse", "--max-steps", "7", "--log-interval", "1", "--val-interval",
          "never", "--snapshot-interval", "never", "--progress", "none", "--places", "2",
          "--balance", "count", "--parallel", "pp", "--chunks", "6", "--schedule", "gpipe"));
}

TEST(PipelineGrid, TakesAPartOfTheBatchWhenItIsQuickAndCallsThatOtherCells) {
  const Study quick = pipeline(false, 2), whole = pipeline(true, 2);
  check_study(quick);
  EXPECT_EQ(quick.cells.size(), 12U);
  for (const StudyCell& each : quick.cells) {
    for (const StudyCell& other : whole.cells) EXPECT_NE(each.id, other.id);
  }
  for (const char* way : {"gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    EXPECT_NO_THROW(pipeline_cell_of(quick, std::string(way) + "-b8-s2"));
  }
  EXPECT_EQ(pipeline(false, 2, 7).rounds, 7);
}

TEST(PipelineGrid, GivesASinglePlaceTheCoresOfOneOrOfBoth) {
  const Study on_two = pipeline(false, 2), on_sixteen = pipeline(false, 16);
  EXPECT_EQ(pipeline_cell_of(on_two, "single-b8").cores, 1);
  EXPECT_EQ(pipeline_cell_of(on_two, "single-both-b8").cores, 2);
  EXPECT_EQ(pipeline_cell_of(on_two, "mp-b8").cores, 2);
  EXPECT_EQ(pipeline_cell_of(on_two, "mp-b8").places, 2);
  EXPECT_EQ(pipeline_cell_of(on_two, "single-both-b8").places, 1);
  EXPECT_EQ(pipeline_cell_of(on_sixteen, "single-b8").cores, 8);
  EXPECT_EQ(pipeline_cell_of(on_sixteen, "single-micro-b8-s2").cores, 8);
  EXPECT_THAT(pipeline_cell_of(on_sixteen, "single-both-b8").environment,
      ElementsAre("OMP_NUM_THREADS=16"));
  EXPECT_THAT(
      pipeline_cell_of(on_sixteen, "1f1b-b8-s2").environment, ElementsAre("OMP_NUM_THREADS=8"));
  EXPECT_EQ(pipeline_cell_of(pipeline(false, 3), "mp-b8").cores, 2) << "both places have one";
}

TEST(PipelineGrid, SaysThatOneCoreIsNotTwo) {
  const Study on_one = pipeline(false, 1);
  check_study(on_one);
  EXPECT_THAT(
      pipeline_cell_of(on_one, "single-both-b8").not_measurable, HasSubstr("needs 2 cores"));
  EXPECT_EQ(pipeline_cell_of(on_one, "mp-b8").not_measurable, "") << "oversubscribed";
}

TEST(PipelineGrid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : pipeline(full, 2).cells) {
      ASSERT_EQ(each.command.front(), "train");
      const auto launch = cli::parse_train_launch({each.command.begin() + 1, each.command.end()});
      EXPECT_EQ(launch.options.workers, 1) << each.id;
      const auto train = cli::parse_train_flags(launch.rest, {});
      ASSERT_TRUE(train.has_value());
      EXPECT_EQ(train->options.places.value_or(1), each.places) << each.id;
      const auto images = train->options.batch_size * train->options.grad_accum_steps;
      EXPECT_EQ(images, std::stoi(each.settings.at(1).value)) << each.id;
    }
  }
}

}  // namespace
}  // namespace lockstep::bench::pipeline
