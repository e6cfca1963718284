#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "bench/studies/catalogue.h"
#include "bench/studies/data_parallel/study.h"
#include "bench/study/train_command.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::data_parallel {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

Study study(bool full, int cores, int rounds = 0) {
  return find_study("data-parallel")
      ->make({.full = full, .cores = cores, .data = {}, .rounds = rounds});
}

const StudyCell& cell(const Study& study, const std::string& id) {
  for (const StudyCell& each : study.cells) {
    if (each.id == id) return each;
  }
  throw InvalidArgument("no cell " + id);
}

std::string evaluations_of(const StudyCell& cell) {
  const auto flag = std::find(cell.command.begin(), cell.command.end(), "--val-interval");
  return flag == cell.command.end() ? "" : *std::next(flag);
}

TEST(Grid, IsTheStudysInFull) {
  const Study whole = study(true, 4);
  check_study(whole);
  // Two models, three repeats, three batch sizes; one place once, two and four in both ways.
  EXPECT_EQ(whole.cells.size(), 2U * 3U * 3U * 5U);
  std::set<std::string> ids;
  for (const StudyCell& each : whole.cells) ids.insert(each.id);
  EXPECT_EQ(ids.size(), whole.cells.size());
  for (const StudyCell& each : whole.cells) {
    EXPECT_THAT(each.command, ::testing::Not(Contains("--limit-train-batches"))) << each.id;
    EXPECT_EQ(each.rounds, 0);
  }
  EXPECT_THAT(cell(whole, "mnist-large-r8-b512-p4-ddp").command,
      ElementsAre("train", "--model", "mnist-large", "--data", "fashion-mnist", "--repeat", "8",
          "--batch-size", "512", "--opt", "adam", "--lr", "0.001", "--epochs", "2",
          "--val-interval", "0", "--snapshot-interval", "never", "--progress", "none", "--parallel",
          "ddp", "--nproc-per-node", "4", "--max-restarts", "0"));
}

TEST(Grid, CutsEpochsWhenItIsQuickAndCallsThatOtherCells) {
  const Study quick = study(false, 2);
  check_study(quick);
  const Study whole = study(true, 2);
  for (const StudyCell& each : quick.cells) {
    EXPECT_THAT(each.command, Contains("--limit-train-batches")) << each.id;
    for (const StudyCell& other : whole.cells) EXPECT_NE(each.id, other.id);
  }
  // The test set takes the large net longer than what is timed.
  EXPECT_EQ(evaluations_of(cell(quick, "mnist-large-r1-b128-p1-s4")), "never");
  EXPECT_EQ(evaluations_of(cell(quick, "mnist-small-r1-b128-p1-s120")), "0");
  // The same images at every number of places.
  EXPECT_EQ(cell(quick, "mnist-small-r1-b128-p1-s120").command.back(), "120");
  EXPECT_EQ(cell(quick, "mnist-small-r1-b128-p4-dp-s30").command.back(), "30");
  EXPECT_EQ(cell(quick, "mnist-small-r1-b128-p4-dp-s30").rounds, 1);
  EXPECT_EQ(cell(study(false, 2, 5), "mnist-small-r1-b128-p4-dp-s30").rounds, 0);
}

TEST(Grid, GivesEachPlaceTheSameCores) {
  EXPECT_EQ(cores_a_place(1), 1);
  EXPECT_EQ(cores_a_place(2), 1);
  EXPECT_EQ(cores_a_place(7), 1);
  EXPECT_EQ(cores_a_place(16), 4);
  const Study on_two = study(true, 2), on_sixteen = study(true, 16);
  EXPECT_EQ(cell(on_two, "mnist-small-r1-b128-p1").cores, 1);
  EXPECT_EQ(cell(on_two, "mnist-small-r1-b128-p2-dp").cores, 2);
  EXPECT_EQ(cell(on_two, "mnist-small-r1-b128-p4-dp").cores, 2);
  EXPECT_EQ(cell(on_sixteen, "mnist-small-r1-b128-p1").cores, 4);
  EXPECT_EQ(cell(on_sixteen, "mnist-small-r1-b128-p4-ddp").cores, 16);
  EXPECT_THAT(
      cell(on_sixteen, "mnist-small-r1-b128-p4-ddp").environment, ElementsAre("OMP_NUM_THREADS=4"));
}

TEST(Grid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : study(full, 2).cells) {
      ASSERT_EQ(each.command.front(), "train");
      const auto launch = cli::parse_train_launch({each.command.begin() + 1, each.command.end()});
      const int ranks = launch.options.workers;
      const auto train =
          cli::parse_train_flags(launch.rest, {.world_size = ranks, .local_world_size = ranks});
      ASSERT_TRUE(train.has_value());
      EXPECT_EQ(std::max(ranks, train->options.places.value_or(1)), each.places) << each.id;
      EXPECT_EQ(launch.options.max_restarts, 0) << each.id;
    }
  }
}

}  // namespace
}  // namespace lockstep::bench::data_parallel
