// What `bench collectives` runs, and what it reads of a run.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "bench/cli/collectives_flags.h"
#include "bench/collectives/sweep_line.h"
#include "bench/studies/catalogue.h"
#include "bench/studies/collectives/study.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::collectives {
namespace {

using ::testing::Contains;

Study study_with(bool full, int cores, int rounds = 0) {
  return find_study("collectives")
      ->make({.full = full, .cores = cores, .data = {}, .rounds = rounds});
}

TEST(CollectivesGrid, IsFourCollectivesAtThreeNumbersOfRanksInFull) {
  const Study whole = study_with(true, 4);
  check_study(whole);
  EXPECT_EQ(whole.cells.size(), 4U * 3U * 4U);
  EXPECT_EQ(whole.rounds, 6);
  std::set<std::string> collectives;
  for (const StudyCell& each : whole.cells) {
    collectives.insert(each.settings.front().value);
    EXPECT_EQ(each.cores, 4);
    EXPECT_THAT(each.command, Contains("268435456"));
  }
  EXPECT_EQ(collectives,
      (std::set<std::string>{"all_gather", "all_reduce", "broadcast", "reduce_scatter"}));
}

TEST(CollectivesGrid, IsTwoCollectivesOfTwoRanksWhenQuick) {
  const Study quick = study_with(false, 2);
  check_study(quick);
  EXPECT_EQ(quick.cells.size(), 2U * 4U);
  EXPECT_EQ(study_with(false, 2, 5).rounds, 5);
  for (const StudyCell& each : quick.cells) {
    EXPECT_EQ(each.places, 2);
    EXPECT_THAT(each.command, Contains("67108864"));
    for (const StudyCell& other : study_with(true, 2).cells) EXPECT_NE(each.id, other.id);
  }
}

TEST(CollectivesGrid, EveryCommandIsOneThatTheVerbTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : study_with(full, 2).cells) {
      ASSERT_EQ(each.command.front(), "collectives");
      const auto command = cli::parse_collectives({each.command.begin() + 1, each.command.end()});
      ASSERT_TRUE(command.has_value());
      EXPECT_EQ(command->ranks, each.places);
      EXPECT_NO_THROW(check_sweep(command->sweep, command->ranks)) << each.id;
      const auto sizes = Point{.largest = std::stoll(each.settings.back().value)}.sizes();
      EXPECT_EQ(message_sizes(command->sweep, command->ranks), sizes) << each.id;
      const bool gloo = each.id.find("gloo") != std::string::npos;
      EXPECT_EQ(command->pin, !gloo) << "Gloo is best unpinned";
    }
  }
}

class SweepFolder : public ::testing::Test {
 protected:
  SweepFolder() : path_(std::filesystem::path(::testing::TempDir()) / "collectives_test_run") {
    std::filesystem::create_directories(path_);
  }
  ~SweepFolder() override { std::filesystem::remove_all(path_); }

  void write(std::int64_t up_to, Collective collective) const {
    std::ofstream file(path_ / kSweepFile);
    for (const std::int64_t bytes : Point{.largest = up_to}.sizes()) {
      const auto size = static_cast<double>(bytes);
      const SweepLine line{.collective = collective,
          .backend = "shm",
          .bytes = bytes,
          .seconds = {size / 1e9, size / 2e9, size / 3e9},
          .copy_seconds = {size / 1e10}};
      file << to_json(line) << '\n';
    }
  }

  std::map<std::string, double> values() const {
    const Study study = study_with(false, 2);
    return study.values(study.cells.front(), path_);
  }

  std::filesystem::path path_;
};

TEST_F(SweepFolder, GivesTheMediansOfEachSize) {
  write(64 << 20, Collective::kAllReduce);
  const auto read = values();
  EXPECT_DOUBLE_EQ(read.at("seconds_4096"), 4096 / 2e9);
  EXPECT_DOUBLE_EQ(read.at("copy_seconds_4096"), 4096 / 1e10);
  EXPECT_DOUBLE_EQ(read.at("smallest_microseconds"), 1024 / 2e3);
  EXPECT_DOUBLE_EQ(read.at("largest_milliseconds"), (64 << 20) / 2e6);
}

TEST_F(SweepFolder, RefusesASweepThatIsNotWholeOrOfAnotherCollective) {
  write(16 << 20, Collective::kAllReduce);
  EXPECT_THROW(values(), DataError);
  write(64 << 20, Collective::kReduce);
  EXPECT_THROW(values(), DataError);
  std::filesystem::remove(path_ / kSweepFile);
  EXPECT_THROW(values(), DataError);
}

}  // namespace
}  // namespace lockstep::bench::collectives
