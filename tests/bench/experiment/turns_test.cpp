#include "bench/experiment/turns.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "tests/bench/experiment/shell_study.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Study study_of(std::size_t cells, int rounds) {
  Study study;
  study.name = "s";
  study.rounds = rounds;
  for (std::size_t i = 0; i < cells; ++i) {
    StudyCell cell;
    cell.id = concat("c", i);
    study.cells.push_back(cell);
  }
  return study;
}

Sample sample_of(const Study& study, const Turn& turn) {
  return {.study = study.name, .cell = study.cells[turn.cell].id, .round = turn.round};
}

TEST(RoundOrder, HasEachCellOnce) {
  for (std::size_t cells = 0; cells < 20; ++cells) {
    for (int round = 1; round <= 20; ++round) {
      auto order = round_order(42, round, cells);
      std::sort(order.begin(), order.end());
      std::vector<std::size_t> all(cells);
      std::iota(all.begin(), all.end(), std::size_t{0});
      EXPECT_EQ(order, all);
    }
  }
}

TEST(RoundOrder, IsTheSameOnAllMachines) {
  EXPECT_THAT(round_order(42, 1, 6), ElementsAre(5, 1, 3, 0, 4, 2));
  EXPECT_THAT(round_order(42, 2, 6), ElementsAre(3, 2, 1, 0, 4, 5));
  EXPECT_THAT(round_order(43, 1, 6), ElementsAre(0, 1, 4, 2, 5, 3));
}

TEST(MissingTurns, MayBeginInTheOrderOfTheCells) {
  Study study = study_of(6, 2);
  study.begins_in_order = true;
  std::vector<std::size_t> order;
  for (const Turn& turn : missing_turns(study, {}, 42, false)) order.push_back(turn.cell);
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 4, 5, 3, 2, 1, 0, 4, 5));
}

// Each cell stands in each place equally often: none is always measured last, on a warm machine.
TEST(RoundOrder, IsFair) {
  constexpr int kDrawn = 6000;
  std::vector<std::vector<int>> counts(6, std::vector<int>(6, 0));
  for (int round = 1; round <= kDrawn; ++round) {
    const auto order = round_order(42, round, 6);
    for (std::size_t place = 0; place < 6; ++place) ++counts[place][order[place]];
  }
  for (const auto& of_place : counts) {
    for (const int count : of_place) EXPECT_NEAR(count, kDrawn / 6.0, 150) << "5 deviations of 29";
  }
}

TEST(MissingTurns, GoRoundByRound) {
  const auto turns = missing_turns(study_of(3, 2), {}, 42, false);
  ASSERT_EQ(turns.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(turns[i].round, i < 3 ? 1 : 2);
}

// Whatever is there already, the rest keeps its order and nothing is taken twice.
TEST(MissingTurns, AreAllThatIsNotThere) {
  std::mt19937_64 engine(1);
  for (int trial = 0; trial < 500; ++trial) {
    const Study study = study_of(1 + engine() % 7, 1 + static_cast<int>(engine() % 4));
    const auto all = missing_turns(study, {}, 42, false);
    std::vector<Sample> there;
    std::vector<Turn> rest;
    for (const Turn& turn : all) {
      if (engine() % 2 == 0) {
        there.push_back(sample_of(study, turn));
      } else {
        rest.push_back(turn);
      }
    }
    std::shuffle(there.begin(), there.end(), engine);
    EXPECT_EQ(missing_turns(study, there, 42, false), rest);
  }
}

TEST(MissingTurns, LeaveOutWhatIsNotWanted) {
  Study study = study_of(3, 3);
  study.cells[0].not_measurable = "needs root";
  study.cells[1].rounds = 1;
  const auto turns = missing_turns(study, {}, 42, false);
  EXPECT_EQ(turns.size(), 4U) << "one of cell 1, three of cell 2";
  EXPECT_TRUE(std::none_of(turns.begin(), turns.end(),
      [](const Turn& turn) { return turn.cell == 0 || (turn.cell == 1 && turn.round > 1); }));
}

TEST(MissingTurns, TakeFailedSamplesAgainWhenAsked) {
  const Study study = study_of(1, 1);
  Sample failed = sample_of(study, {0, 1});
  failed.failure = "was killed";
  EXPECT_THAT(missing_turns(study, std::vector{failed}, 42, false), IsEmpty());
  EXPECT_THAT(missing_turns(study, std::vector{failed}, 42, true), ElementsAre(Turn{0, 1}));
  const Sample worked = sample_of(study, {0, 1});
  EXPECT_THAT(missing_turns(study, std::vector{failed, worked}, 42, true), IsEmpty());
}

TEST(MissingTurns, WhatCouldNotBeMeasuredThenMayBeNow) {
  const Study study = study_of(1, 1);
  Sample noted = sample_of(study, {0, 1});
  noted.not_measurable = "needs root";
  EXPECT_THAT(missing_turns(study, std::vector{noted}, 42, false), ElementsAre(Turn{0, 1}));
  Sample of_another_study = sample_of(study, {0, 1});
  of_another_study.study = "t";
  EXPECT_EQ(missing_turns(study, std::vector{of_another_study}, 42, false).size(), 1U);
}

Study three_cells() {
  return testing::shell_study(
      {testing::value_cell("a", 1), testing::value_cell("b", 1), testing::value_cell("c", 1)}, 2);
}

Sample taken(const std::string& cell, int round, double seconds, const std::string& failure = "") {
  return {.study = "shell", .cell = cell, .round = round, .seconds = seconds, .failure = failure};
}

TEST(SecondsLeft, AreWhatTheCellsTook) {
  const std::vector<Turn> rest{{0, 2}, {1, 2}, {2, 1}};
  EXPECT_EQ(seconds_left(three_cells(), {}, rest), std::nullopt);
  const std::vector<Sample> samples{taken("a", 1, 10), taken("b", 1, 30), taken("a", 2, 20)};
  EXPECT_EQ(seconds_left(three_cells(), samples, rest), 15 + 30 + 22.5) << "c as the mean of both";
  EXPECT_EQ(seconds_left(three_cells(), samples, {}), 0);
}

TEST(SecondsLeft, OverlooksSamplesThatFailedEarlyAndOthersStudies) {
  const std::vector<Turn> rest{{0, 3}};
  std::vector<Sample> samples{taken("a", 1, 10), taken("a", 2, 1, "was killed")};
  samples.push_back(taken("a", 1, 1000));
  samples.back().study = "other";
  EXPECT_EQ(seconds_left(three_cells(), samples, rest), 10);
  samples.erase(samples.begin());
  EXPECT_EQ(seconds_left(three_cells(), samples, rest), 1) << "better than nothing";
  Sample noted = taken("b", 1, 0);
  noted.not_measurable = "needs root";
  EXPECT_EQ(seconds_left(three_cells(), std::vector{noted}, rest), std::nullopt);
}

TEST(ProgressLines, SayWhatPeopleWantToKnow) {
  const Study study = three_cells();
  EXPECT_EQ(turn_line(study, {1, 2}, {.number = 5, .all = 6}, 200.0),
      "shell: sample 5 of 6, round 2: b; about 3:20 left");
  EXPECT_EQ(turn_line(study, {1, 1}, {.number = 1, .all = 6}, std::nullopt),
      "shell: sample 1 of 6, round 1: b");
  Sample sample = taken("b", 1, 12.34);
  sample.other_share = 0.042;
  EXPECT_EQ(sample_line(sample, "b-1.log"), "b: 12.3 s; others used 4 % of the cores");
  sample.other_share = std::nan("");
  sample.failure = "exited with code 3";
  EXPECT_EQ(sample_line(sample, "b-1.log"),
      "b: 12.3 s; FAILED: exited with code 3 (all output: b-1.log)");
}

}  // namespace
}  // namespace lockstep::bench
