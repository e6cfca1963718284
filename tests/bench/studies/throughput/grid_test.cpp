#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "bench/studies/catalogue.h"
#include "bench/studies/throughput/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"

namespace lockstep::bench::throughput {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kGigabyte = 1'000'000'000;

Study throughput(bool full, int cores) {
  return find_study("throughput")->make({.full = full, .cores = cores});
}

std::set<std::string> ids(const Study& study) {
  std::set<std::string> all;
  for (const StudyCell& cell : study.cells) all.insert(cell.id);
  return all;
}

TEST(ThroughputGrid, IsTheStudysInFullAndDdpBesides) {
  const Study whole = throughput(true, 16);
  check_study(whole);
  EXPECT_THAT(
      ids(whole), UnorderedElementsAre("serial-p1-b128-224px-32-s5000", "dp-p4-b128-224px-32-s5000",
                      "dp-p4-b512-224px-32-s5000", "dp-p4-b512-224px-bf16-mixed-s5000",
                      "dp-p4-b512-224px-16-mixed-s5", "ddp-p4-b128-224px-32-s5000",
                      "ddp-p4-b512-224px-32-s5000", "ddp-p4-b512-224px-bf16-mixed-s5000",
                      "ddp-p4-b512-224px-16-mixed-s5"));
  EXPECT_THAT(
      cell_of(grid({.full = true, .cores = 16}).at(1), {.full = true, .cores = 16}, 0).command,
      ElementsAre("train", "--model", "resnet50", "--num-classes", "1000", "--data",
          "mock:constant", "--image-size", "224", "--batch-size", "32", "--precision", "32",
          "--opt", "sgd", "--lr", "1e-6", "--momentum", "0.9", "--max-steps", "5000",
          "--log-interval", "50", "--val-interval", "never", "--snapshot-interval", "never",
          "--progress", "none", "--parallel", "dp", "--places", "4"));
}

TEST(ThroughputGrid, IsSmallWhenItIsQuick) {
  const Study quick = throughput(false, 2);
  check_study(quick);
  EXPECT_THAT(ids(quick),
      UnorderedElementsAre("serial-p1-b2-224px-32-s4", "dp-p2-b2-224px-32-s4",
          "dp-p2-b8-224px-32-s4", "dp-p2-b8-224px-bf16-mixed-s4", "dp-p2-b4-32px-32-s4",
          "dp-p2-b4-32px-16-mixed-s4", "ddp-p2-b2-224px-32-s4", "ddp-p2-b8-224px-32-s4"));
}

TEST(ThroughputGrid, TakesAsManyPlacesAsThereAreCoresTwoToFour) {
  const auto most = [](int cores) {
    int places = 0;
    for (const StudyCell& cell : throughput(false, cores).cells)
      places = std::max(places, cell.places);
    return places;
  };
  EXPECT_EQ(most(1), 2);
  EXPECT_EQ(most(2), 2);
  EXPECT_EQ(most(3), 3);
  EXPECT_EQ(most(4), 4);
  EXPECT_EQ(most(64), 4);
}

TEST(ThroughputGrid, GivesEveryPlaceTheSameCores) {
  for (const int cores : {1, 2, 3, 16}) {
    const int each = std::max(1, cores / 4);
    for (const StudyCell& cell : throughput(false, cores).cells) {
      EXPECT_EQ(cell.cores, std::min(cores, cell.places * each)) << cell.id;
      EXPECT_THAT(cell.environment, ElementsAre("OMP_NUM_THREADS=" + std::to_string(each)));
    }
  }
}

TEST(ThroughputGrid, DividesEveryBatchAmongThePlacesAndTimesThreeStepsAtLeast) {
  for (const bool full : {false, true}) {
    for (const int cores : {1, 3, 4, 64}) {
      for (const Point& point : grid({.full = full, .cores = cores})) {
        EXPECT_EQ(point.batch % point.places, 0);
        EXPECT_GE(point.steps - point.log_interval, 3);
      }
    }
  }
}

TEST(ThroughputGrid, SaysWhatMemoryIsMissing) {
  const StudyOptions options{.full = true, .cores = 2};
  const auto points = grid(options);
  const Point& large = points.at(2);
  ASSERT_EQ(large.batch, 512);
  EXPECT_THAT(cell_of(large, options, 16 * kGigabyte).not_measurable,
      HasSubstr("of memory, only 16 GB here; use a machine with more, or --quick"));
  EXPECT_EQ(cell_of(large, options, 256 * kGigabyte).not_measurable, "");
  EXPECT_EQ(cell_of(large, options, 0).not_measurable, "") << "not known";
  for (const Point& point : grid({.cores = 2})) {
    EXPECT_EQ(cell_of(point, {.cores = 2}, 8 * kGigabyte).not_measurable, "");
  }
}

TEST(ThroughputGrid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : throughput(full, 2).cells) {
      ASSERT_EQ(each.command.front(), "train");
      const auto launch = cli::parse_train_launch({each.command.begin() + 1, each.command.end()});
      const int ranks = launch.options.workers;
      const auto train =
          cli::parse_train_flags(launch.rest, {.world_size = ranks, .local_world_size = ranks});
      ASSERT_TRUE(train.has_value());
      EXPECT_EQ(std::max(ranks, train->options.places.value_or(1)), each.places) << each.id;
      EXPECT_LT(train->options.val_interval, 0) << "evaluates";
      EXPECT_EQ(launch.options.max_restarts, 0) << each.id;
    }
  }
}

}  // namespace
}  // namespace lockstep::bench::throughput
