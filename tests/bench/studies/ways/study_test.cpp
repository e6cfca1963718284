#include "bench/studies/ways/study.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/section_text.h"
#include "tests/bench/studies/ways/made_ways.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::bench::ways {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::made_rates;
using ::testing::Not;
using testing::RatesByCell;
using testing::row_text;
using testing::text_of;

constexpr const char* kOne = "serial-p1-c1-b128-32";
constexpr const char* kBoth = "serial-p1-c2-b128-32";
constexpr const char* kDp = "dp-p2-c2-b128-32";
constexpr const char* kDdp = "ddp-p2-c2-b128-32";
constexpr const char* kPp = "pp-p2-c2-b128-32";

const StudyOptions kTwoCores{.cores = 2, .ways = {.images = 5120}};

page::Section section(const RatesByCell& rates, const StudyOptions& options = kTwoCores) {
  const Study study = make_study(options);
  page::Section made = study.report(study, made_rates(study, rates));
  testing::expect_whole(made, "ways");
  return made;
}

const RatesByCell kFiveRounds{{kOne, {100, 101, 99, 100, 100}}, {kBoth, {110, 111}},
    {kDp, {150, 152, 149, 150, 151}}, {kDdp, {180, 182, 178, 180, 181}}, {kPp, {90, 91}}};

TEST(WaysAnswer, NamesTheFastestHowSureThatIsAndItsCommand) {
  StudyOptions on_mock = kTwoCores;
  on_mock.data = {"mock"};
  const page::Section made = section(kFiveRounds, on_mock);
  EXPECT_EQ(made.conclusion.answer,
      "Fastest: ddp on 2 places, 180 images/s, 1.80 (1.80 to 1.81) times as fast as one process on "
      "1 core. It is 1.20 (1.19 to 1.20) times as fast as the next, dp on 2 places: surely "
      "faster.");
  EXPECT_EQ(made.conclusion.remarks.front(),
      "Train with: OMP_NUM_THREADS=1 lockstep train --model mnist-small --batch-size 64 "
      "--precision 32 --parallel ddp --nproc-per-node 2");
  EXPECT_THAT(text_of(made), HasSubstr("2.0 % was waiting for data and 20 % for other ranks in "
                                       "backward. A larger batch needs less of that"));
  EXPECT_THAT(text_of(made), HasSubstr("It makes 90 % of what its cores would"));
  EXPECT_THAT(text_of(made), HasSubstr("left out of later rounds: 2 of 5."));
}

TEST(WaysAnswer, SaysWhenItIsNotSure) {
  EXPECT_THAT(section({{kDp, {150, 152}}, {kDdp, {180, 182}}}).conclusion.answer,
      HasSubstr("dp on 2 places: faster in every round."));
  const auto close = section({{kDp, {150, 182}}, {kDdp, {180, 152}}, {kOne, {1, 1}}});
  EXPECT_THAT(close.conclusion.answer, HasSubstr("no significant difference."));
  EXPECT_THAT(section({{kDp, {150}}, {kDdp, {180}}}).conclusion.answer,
      HasSubstr("only one round, not conclusive."));
  EXPECT_THAT(section({{kDp, {150}}}).conclusion.answer,
      HasSubstr("No other cell has a number to compare it with."));
}

TEST(WaysAnswer, OfEqualsItTakesTheSimplest) {
  const std::vector<double> ddp{100, 101, 100, 102, 100}, dp{99.8, 99, 99.6, 100.5, 99.5};
  const page::Section made = section({{kOne, {70, 70}}, {kDp, dp}, {kDdp, ddp}, {kPp, {50, 50}}});
  EXPECT_THAT(made.conclusion.answer,
      HasSubstr("It is 1.00 (1.00 to 1.02) times as fast as the next, dp on 2 places: equal within "
                "3 %. Practically as fast (equal within 3 %): dp on 2 places. Take dp on 2 places: "
                "it is one process."));
  EXPECT_THAT(made.conclusion.remarks.front(), HasSubstr("--parallel dp --places 2"));
  EXPECT_THAT(text_of(made), HasSubstr("lies between 0.97 and 1.03."));
  EXPECT_THAT(text_of(made), HasSubstr("clearly slower, or equal, were left out"));
  EXPECT_THAT(section({{kBoth, ddp}, {kDp, dp}}).conclusion.answer,
      HasSubstr("dp on 2 places. None of them is simpler: take the fastest."));
  const auto all = section({{kOne, dp}, {kBoth, dp}, {kDp, dp}, {kDdp, ddp}});
  EXPECT_THAT(
      all.conclusion.answer, HasSubstr("one process on 1 core; one process on 2 cores; dp on "
                                       "2 places. Take one process on 1 core: it takes "
                                       "fewer cores."));
  EXPECT_THAT(all.conclusion.remarks.front(), HasSubstr("OMP_NUM_THREADS=1 lockstep train"));
}

TEST(WaysAnswer, HasNoEqualsThatAreNotSure) {
  const auto four = section({{kDp, {100, 100, 100, 100}}, {kDdp, {100, 101, 100, 101}}});
  EXPECT_THAT(four.conclusion.answer, Not(HasSubstr("equal")));
  const auto faster = section({{kDp, {98, 98, 98, 98, 98}}, {kDdp, {100, 100, 100, 100, 100}}});
  EXPECT_THAT(faster.conclusion.answer, HasSubstr("equal within 3 %. Practically as fast"))
      << "the difference is sure, but small";
  EXPECT_THAT(faster.conclusion.answer, Not(HasSubstr("surely")));
}

TEST(WaysAnswer, DoesNotInventWhatTheRunsDidNotRecord) {
  const auto serial = text_of(section({{kOne, {100}}, {kBoth, {200}}}));
  EXPECT_THAT(serial, HasSubstr("Fastest: one process on 2 cores"));
  EXPECT_THAT(serial, HasSubstr("2.0 % was waiting for data."));
  EXPECT_THAT(serial, Not(HasSubstr("places wait")));
  EXPECT_THAT(text_of(section({{kDp, {100}}})),
      HasSubstr("was waiting for data. What its places wait for each other is not recorded."));
}

TEST(WaysAnswer, NamesWhatWasLeftOutAndWhatDidNotFit) {
  StudyOptions options = kTwoCores;
  options.ways.refused[kPp] = "a net of one layer cannot be cut";
  const std::string text = text_of(section({{kOne, {100}}, {kBoth, {90}}}, options));
  EXPECT_THAT(
      text, HasSubstr("Not measured in the time that there was: dp on 2 places; ddp on 2 places."));
  EXPECT_THAT(text, HasSubstr("Left out: pp on 2 places: a net of one layer cannot be cut"));
  EXPECT_EQ(section({}).conclusion.answer, "No cell has a number and cores of its own.");
}

TEST(WaysAnswer, IsNeverOneThatHadNoCoresOfItsOwn) {
  const StudyOptions crowded{.cores = 2, .ways = {.places = {1, 4}, .images = 5120}};
  const auto made = section({{kOne, {100}}, {"ddp-p4-c2-b128-32", {200}}}, crowded);
  EXPECT_THAT(made.conclusion.answer, HasSubstr("Fastest: one process on 1 core"));
  EXPECT_THAT(text_of(made), HasSubstr("4 places are more than there are cores"));
}

TEST(WaysTable, NamesReplicasAndStagesAndThatTheyHadNoCores) {
  const StudyOptions crowded{
      .cores = 2, .ways = {.places = {1, 2, 4}, .ways = {"serial", "ddp+pp"}}};
  const auto made = section({{kOne, {100}}, {"ddp-pp-p4-s2-c2-b128-32", {90}}}, crowded);
  EXPECT_THAT(row_text(testing::table_of(made, "ways-rates"), "ddp+pp on 4 places (2 x 2 stages)|"),
      HasSubstr("|oversubscribed|"));
  EXPECT_THAT(
      text_of(made), HasSubstr("Left out: ddp+pp on 2 places (1 x 2 stages): 2 places cannot "
                               "be several replicas"));
  EXPECT_THAT(text_of(made), HasSubstr("4 places are more than there are cores"));
}

TEST(WaysAnswer, TellsBatchesAndPrecisionsApart) {
  StudyOptions options = kTwoCores;
  options.ways.batches = {128, 256};
  options.ways.ways = {"serial", "ddp"};
  for (const char* id : {"ddp-p2-c2-b128-32", "serial-p1-c2-b128-32"})
    options.ways.refused[id] = "one reason";
  const auto made = section(
      {{kOne, {100}}, {"ddp-p2-c2-b256-32", {190}}, {"serial-p1-c1-b256-32", {105}}}, options);
  EXPECT_THAT(
      made.conclusion.answer, HasSubstr("Fastest: ddp on 2 places, batch 256, 190 images/s, "
                                        "1.81 times as fast as one process on 1 core, batch 256."));
  EXPECT_THAT(text_of(made),
      HasSubstr(
          "Left out: one process on 2 cores, batch 128; ddp on 2 places, batch 128: one reason"));
}

TEST(WaysTable, ComparesWithOneProcessOnTheFewestCores) {
  const page::Section made = section(kFiveRounds);
  const page::Table& table = testing::table_of(made, "ways-rates");
  EXPECT_EQ(row_text(table, "one process on 1 core|"),
      "one process on 1 core|1|128|32|100|99.0 to 101|5|-|-|-|the others are compared with it|");
  EXPECT_EQ(row_text(table, "ddp on 2 places|"),
      "ddp on 2 places|2|128|32|180|178 to 182|5|1.80|1.80 to 1.81|90 %|-|");
  EXPECT_THAT(row_text(table, "one process on 2 cores|"), HasSubstr("|1.10|1.10 to 1.10|55 %|"));
  const page::Table& costs = testing::table_of(made, "ways-costs");
  EXPECT_EQ(row_text(costs, "ddp on 2 places|"), "ddp on 2 places|2|128|32|2.0 %|20 %|300|-|");
  EXPECT_EQ(row_text(costs, "dp on 2 places|"), "dp on 2 places|2|128|32|2.0 %|-|300|-|");
}

TEST(WaysStudy, GoesOnUntilTheFastestIsSureOrForTheRoundsAsked) {
  const Study study = make_study(kTwoCores);
  EXPECT_TRUE(study.begins_in_order);
  const auto worth = [&](const RatesByCell& rates) {
    return study.worth(cell_results(study, made_rates(study, rates)));
  };
  EXPECT_THAT(worth({{kOne, {1}}}), ElementsAre(true, true, true, true, true));
  EXPECT_THAT(worth(kFiveRounds), ElementsAre(false, false, false, false, false));
  RatesByCell tied = kFiveRounds;
  tied[kDp] = tied[kDdp];
  EXPECT_THAT(worth(tied), ElementsAre(false, false, false, false, false));
  StudyOptions three = kTwoCores;
  three.rounds = 3;
  EXPECT_EQ(make_study(three).rounds, 3);
  EXPECT_FALSE(make_study(three).worth);
}

TEST(WaysValues, LeaveOutTheStepsThatWarmUp) {
  const lockstep::testing::TemporaryFolder folder;
  const auto line = [](int step, double rate) {
    return concat(R"({"v":1,"time":"2026-01-31T12:00:00.000Z","elapsed":1,"rank":0,"restart":0,)",
        R"("epoch":1,"step":)", step, R"(,"split":"train","loss":1,"samples_per_s":)", rate,
        R"(,"step_ms":100,"data_ms":5,"comm_ms":20})", "\n");
  };
  std::ofstream(folder.path() / "summary.json") << R"({"v":1,"peak_memory_bytes":1000})";
  std::ofstream(folder.path() / "metrics.jsonl") << line(2, 1) << line(4, 10) << line(6, 30);
  const SampleValues values = values_of({.way = "ddp"}, folder.path(), 2);
  EXPECT_DOUBLE_EQ(values.at(kRate), 20);
  EXPECT_DOUBLE_EQ(values.at(kDataShare), 0.05);
  EXPECT_DOUBLE_EQ(values.at(kCommShare), 0.2);
  EXPECT_EQ(values.at(kPeakMemory), 1000);
  EXPECT_FALSE(values_of({.way = "pp"}, folder.path(), 2).contains(kCommShare));
  EXPECT_THROW(values_of({}, folder.path(), 6), DataError);
}

}  // namespace
}  // namespace lockstep::bench::ways
