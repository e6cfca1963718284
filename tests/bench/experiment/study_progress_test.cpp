#include "bench/experiment/study_progress.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/bench/experiment/shell_study.h"

namespace lockstep::bench {
namespace {

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
