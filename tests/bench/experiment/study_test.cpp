#include "bench/experiment/study.h"

#include <cmath>
#include <gmock/gmock.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;

Study good() { return testing::shell_study({testing::value_cell("a", 1)}, 1); }

std::string complaint(const Study& study) {
  return lockstep::testing::complaint_of<InvalidArgument>([&] { check_study(study); });
}

std::string complaint_about(const std::function<void(StudyCell&)>& spoil) {
  Study study = good();
  spoil(study.cells.front());
  return complaint(study);
}

TEST(CheckStudy, TakesWhatCanBe) {
  EXPECT_EQ(complaint(good()), "");
  EXPECT_EQ(complaint_about([](StudyCell& cell) { cell.id = "a.B_9-c"; }), "");
  EXPECT_EQ(complaint_about([](StudyCell& cell) {
    cell.command.clear();
    cell.not_measurable = "needs root";
  }),
      "");
}

TEST(CheckStudy, RefusesWhatNamesNoFile) {
  for (const std::string& id : {std::string(), std::string(".."), std::string("a/b"),
           std::string("a b"), std::string(201, 'a')}) {
    EXPECT_THAT(complaint_about([&](StudyCell& cell) { cell.id = id; }), HasSubstr("an id must"));
  }
}

TEST(CheckStudy, RefusesWhatCannotBe) {
  Study study = good();
  study.cells.push_back(study.cells.front());
  EXPECT_EQ(complaint(study), "shell: cell 'a': two cells have this id");
  study = good();
  study.rounds = 0;
  EXPECT_EQ(complaint(study), "shell: needs at least 1 round, has 0");
  study = good();
  study.limit_seconds = 0;
  EXPECT_THAT(complaint(study), HasSubstr("a sample needs time"));
  study = good();
  study.values = nullptr;
  EXPECT_THAT(complaint(study), HasSubstr("nothing reads the values"));
}

TEST(CheckStudy, RefusesCellsThatCannotBe) {
  EXPECT_THAT(complaint_about([](auto& cell) { cell.command.clear(); }), HasSubstr("no command"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.places = 0; }), HasSubstr("1 place, has 0"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.cores = -1; }), HasSubstr("less than 0"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.rounds = -1; }), HasSubstr("less than 0"));
  EXPECT_THAT(complaint_about([](auto& cell) {
    cell.settings = {{"n", "1"}, {"n", "2"}};
  }),
      HasSubstr("has the setting n twice"));
  for (const char* variable : {"NAME", "=1"}) {
    EXPECT_THAT(complaint_about([&](auto& cell) { cell.environment = {variable}; }),
        HasSubstr("must be NAME=VALUE"));
  }
}

Study two_cells() {
  Study study = testing::shell_study({testing::value_cell("a", 1), testing::value_cell("b", 1)}, 3);
  study.cells[0].settings = {{"batch", "128"}, {"model", "toy"}};
  return study;
}

Sample of(const std::string& cell, int round, double seconds) {
  return {.study = "shell", .cell = cell, .round = round, .values = {{"seconds", seconds}}};
}

Sample failed(const std::string& cell, int round, const std::string& failure) {
  return {.study = "shell", .cell = cell, .round = round, .failure = failure};
}

TEST(CellResults, StandInTheStudysOrderWithTheirEstimates) {
  const std::vector<Sample> samples{of("b", 2, 5), of("a", 3, 1), of("a", 1, 3), of("a", 2, 8)};
  const auto results = cell_results(two_cells(), samples);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].cell.id, "a");
  EXPECT_THAT(testing::names(results[0].samples), ElementsAre("a-1", "a-2", "a-3"));
  EXPECT_THAT(results[0].estimates, ElementsAre(Key("seconds")));
  EXPECT_EQ(results[0].estimate("seconds")->median, 3);
  EXPECT_EQ(results[0].estimate("seconds")->low, 1);
  EXPECT_EQ(results[0].estimate("seconds")->high, 8);
  EXPECT_EQ(results[0].estimate("speed"), std::nullopt);
  EXPECT_THAT(results[0].by_round("seconds"), ElementsAre(Pair(1, 3), Pair(2, 8), Pair(3, 1)));
  EXPECT_EQ(results[0].reason, "");
  EXPECT_EQ(results[0].setting("model"), "toy");
  EXPECT_EQ(results[0].setting("none"), "");
}

TEST(CellResults, SayWhyThereIsNoNumber) {
  Study study = two_cells();
  EXPECT_EQ(cell_results(study, {})[0].reason, "not run yet");
  const std::vector<Sample> samples{failed("a", 2, "was killed"), failed("a", 1, "exited")};
  const auto results = cell_results(study, samples);
  EXPECT_EQ(results[0].reason, "was killed");
  EXPECT_EQ(results[0].failures, 2);
  EXPECT_THAT(results[0].estimates, IsEmpty());
  study.cells[1].not_measurable = "needs root";
  EXPECT_EQ(cell_results(study, {})[1].reason, "needs root");
  Sample noted = of("a", 1, 0);
  noted.values.clear();
  noted.not_measurable = "needs four cores";
  EXPECT_EQ(cell_results(study, std::vector{noted})[0].reason, "needs four cores")
      << "as noted then";
  EXPECT_EQ(cell_results(study, std::vector{noted})[0].failures, 0);
}

TEST(CellResults, EstimateFromWhatWorked) {
  Sample partly = failed("a", 2, "its results cannot be read");
  partly.values["seconds"] = 1000;
  const auto results = cell_results(two_cells(), std::vector{of("a", 1, 3), partly});
  EXPECT_EQ(results[0].estimate("seconds")->count, 1);
  EXPECT_EQ(results[0].estimate("seconds")->median, 3);
  EXPECT_EQ(results[0].reason, "");
  EXPECT_EQ(results[0].failures, 1);
}

TEST(CellResults, TakeTheLastOfARoundAndOverlookOtherStudies) {
  Sample other = of("a", 2, 100);
  other.study = "other";
  const std::vector<Sample> samples{
      failed("a", 1, "was killed"), of("a", 1, 3), other, of("gone", 1, 1)};
  const auto results = cell_results(two_cells(), samples);
  EXPECT_EQ(results[0].failures, 0);
  EXPECT_EQ(results[0].estimate("seconds")->count, 1);
}

TEST(CellResults, HaveNoEstimateOfWhatWasEverNotFinite) {
  const std::vector<Sample> samples{of("a", 1, 3), of("a", 2, std::nan(""))};
  const auto results = cell_results(two_cells(), samples);
  EXPECT_EQ(results[0].estimate("seconds"), std::nullopt);
  EXPECT_THAT(results[0].by_round("seconds"), ElementsAre(Pair(1, 3)));
}

TEST(CellResults, MarkWhatIsOversubscribed) {
  Sample sample = of("a", 1, 3);
  sample.oversubscribed = true;
  const auto results = cell_results(two_cells(), std::vector{sample, of("b", 1, 3)});
  EXPECT_TRUE(results[0].oversubscribed);
  EXPECT_FALSE(results[1].oversubscribed);
}

TEST(CellResults, ShowOutliers) {
  std::vector<Sample> samples;
  for (int round = 1; round <= 6; ++round) samples.push_back(of("a", round, 10 + 0.1 * round));
  samples[3].values["seconds"] = 30;
  EXPECT_THAT(cell_results(two_cells(), samples)[0].outlier_rounds("seconds"), ElementsAre(4));
  EXPECT_THAT(cell_results(two_cells(), samples)[0].outlier_rounds("none"), IsEmpty());
}

TEST(RatioOf, PairsTheRoundsThatBothHave) {
  const std::vector<Sample> samples{of("a", 1, 2), of("a", 2, 30), of("a", 3, 40), of("b", 2, 10),
      of("b", 1, 1), failed("b", 3, "was killed")};
  const auto results = cell_results(two_cells(), samples);
  const auto ratio = ratio_of(results[0], results[1], "seconds");
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->count, 2);
  EXPECT_DOUBLE_EQ(ratio->median, 16.0 / 5.5);
  EXPECT_DOUBLE_EQ(ratio->low, 2);
  EXPECT_DOUBLE_EQ(ratio->high, 3);
}

TEST(RatioOf, IsNothingWhereNothingCanBeCompared) {
  const auto apart = cell_results(two_cells(), std::vector{of("a", 1, 2), of("b", 2, 1)});
  EXPECT_EQ(ratio_of(apart[0], apart[1], "seconds"), std::nullopt);
  const auto zero = cell_results(two_cells(), std::vector{of("a", 1, 2), of("b", 1, 0)});
  EXPECT_EQ(ratio_of(zero[0], zero[1], "seconds"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::bench
