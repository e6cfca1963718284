#include "bench/studies/collectives.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/cli/collectives_flags.h"
#include "bench/collectives/sweep.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::collectives {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using testing::table_of;
using testing::text_of;

Study study_with(bool full, int cores, int rounds = 0) {
  return make_study({.full = full, .cores = cores, .rounds = rounds});
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

class SweepFolder : public testing::RunFolder {
 protected:
  void write(std::int64_t up_to, Collective collective) const {
    std::ofstream file(run() / kSweepFile);
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
    return study.values(study.cells.front(), run());
  }
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
  std::filesystem::remove(run() / kSweepFile);
  EXPECT_THROW(values(), DataError);
}

// The same time at all sizes in three rounds, of one way; other ways are as made_sweeps() has them.
void set_seconds(
    std::vector<Sample>& samples, const std::string& way, std::int64_t bytes, double seconds) {
  for (Sample& sample : samples) {
    if (sample.settings["way"] == way) sample.values[seconds_value(bytes)] = seconds;
  }
}

TEST(CollectivesStudy, SetsWaysSideBySide) {
  const Study study = study_with(false, 2);
  const auto section = report_of(study, made_sweeps(study));
  const auto& time = table_of(section, "collectives-time");
  ASSERT_EQ(time.rows.size(), 2U * 9U);
  EXPECT_EQ(row_text(time, 0), "all_reduce|2|1 KiB|5.33|16.0|6.40|53.3|0.102|-|");
  EXPECT_EQ(row_text(time, 9), "broadcast|2|1 KiB|5.33|16.0|6.40|53.3|0.051|-|");
  EXPECT_EQ(row_text(table_of(section, "collectives-against-gloo"), 3),
      "all_reduce|2|64 KiB|10.00|10.00 to 10.00|3.33|3.33 to 3.33|8.33|8.33 to 8.33|-|");
  EXPECT_EQ(row_text(table_of(section, "collectives-bus-bandwidth"), 8),
      "all_reduce|2|64 MiB|7.69|2.56|6.41|0.769|10.0|-|");
  const auto& latency = table_of(section, "collectives-latency");
  ASSERT_EQ(latency.rows.size(), 8U);
  EXPECT_EQ(
      row_text(latency, 0), "all_reduce|2|1 KiB|shm|5.33|5.23 to 5.44|10.00|10.00 to 10.00|-|");
  EXPECT_THAT(row_text(latency, 3), HasSubstr("what the others are compared with"));
  EXPECT_EQ(table_of(section, "collectives-samples").rows.size(), 24U);
}

TEST(CollectivesStudy, BusBandwidthFollowsTheRanks) {
  Study study = study_with(true, 8);
  const auto section = report_of(study, made_sweeps(study));
  const auto& algorithm = table_of(section, "collectives-algorithm-bandwidth");
  const auto& bus = table_of(section, "collectives-bus-bandwidth");
  const auto at = [](const page::Table& table, const std::string& op, const std::string& ranks) {
    for (const auto& row : table.rows) {
      if (row[0] == op && row[1] == ranks && row[2] == "256 MiB") return std::stod(row[3]);
    }
    return 0.0;
  };
  EXPECT_NEAR(at(bus, "all_reduce", "8") / at(algorithm, "all_reduce", "8"), 1.75, 0.01);
  EXPECT_NEAR(at(bus, "all_gather", "4") / at(algorithm, "all_gather", "4"), 0.75, 0.01);
  EXPECT_NEAR(at(bus, "broadcast", "4") / at(algorithm, "broadcast", "4"), 1, 0.01);
}

TEST(CollectivesStudy, ConcludesWhereOursIsFasterByHowMuchAndHowSure) {
  const Study study = study_with(false, 2);
  const std::string text = text_of(report_of(study, made_sweeps(study)));
  EXPECT_THAT(
      text, ContainsRegex("all_reduce of 2 ranks: shm is 10.00 times as fast as Gloo, faster in "
                          "every round at 9 of 9 sizes"));
  EXPECT_THAT(text, ContainsRegex("1 KiB .*shm 5.33 µs .*Gloo 53.3 µs"));
  EXPECT_THAT(text, ContainsRegex("64 MiB .*bus bandwidth of 7.69 and 0.769 GB/s"));
  EXPECT_THAT(text, ContainsRegex("shm in 1.30 times .*predicts"));
  EXPECT_THAT(text, HasSubstr("over 3 rounds"));
  EXPECT_THAT(text, HasSubstr("a probability of 75 %"));
  EXPECT_THAT(text, HasSubstr("No figures of collectives were published"));
}

TEST(CollectivesStudy, ConcludesTheOtherWayFromOtherNumbers) {
  const Study study = study_with(false, 2);
  auto samples = made_sweeps(study);
  for (const std::int64_t bytes : Point{.largest = 64 << 20}.sizes())
    set_seconds(samples, "shm", bytes, 1e3);
  set_seconds(samples, "shm", 4096, 1e-9);
  const std::string text = text_of(report_of(study, samples));
  EXPECT_THAT(text,
      ContainsRegex("faster in every round at 1 of 9 sizes .4 KiB., slower in every round at 8 "
                    ".1 KiB, 16 KiB, 64 KiB"));
}

TEST(CollectivesStudy, IsNotSureOfOneRoundOrOfRatiosAroundOne) {
  const Study study = study_with(false, 2);
  auto samples = made_sweeps(study);
  for (Sample& sample : samples) {
    const bool odd = sample.settings["way"] == "shm" && sample.round == 2;
    if (odd) sample.values[seconds_value(1024)] = 1;
  }
  EXPECT_THAT(text_of(report_of(study, samples)),
      HasSubstr("faster in every round at 8 of 9 sizes (4 KiB"));
  std::erase_if(samples, [](const Sample& sample) { return sample.round > 1; });
  const auto once = report_of(study, samples);
  EXPECT_THAT(text_of(once), HasSubstr("nothing is sure"));
  EXPECT_THAT(text_of(once), Not(HasSubstr("in every round")));
}

TEST(CollectivesStudy, WarnsWhenOthersUsedTheCores) {
  const Study study = study_with(false, 2);
  auto samples = made_sweeps(study);
  EXPECT_THAT(text_of(report_of(study, samples)), Not(HasSubstr("measure again")));
  for (Sample& sample : samples) sample.other_share = 0.6;
  EXPECT_THAT(
      text_of(report_of(study, samples)), HasSubstr("Others used 60 % of the cores meanwhile"));
}

TEST(CollectivesStudy, ClaimsNothingOfOversubscribedRanksAndMarksThem) {
  const Study study = study_with(true, 2);
  const auto section = report_of(study, made_sweeps(study));
  EXPECT_THAT(text_of(section), Not(HasSubstr("of 4 ranks:")));
  EXPECT_THAT(text_of(section), HasSubstr("4 ranks are more than there are cores"));
  testing::expect_oversubscribed_marks(section);
  EXPECT_THAT(testing::figure_of(section, "collectives-time-all_reduce-n4").note,
      HasSubstr("Oversubscribed"));
}

TEST(CollectivesStudy, SaysWhyACellHasNoNumber) {
  const Study study = study_with(false, 2);
  auto samples = made_sweeps(study);
  testing::fail_where(samples, "killed by SIGKILL, for want of memory (the limit of our cgroup)",
      [](const Sample& sample) { return sample.cell == "all_reduce-n2-gloo-64MiB"; });
  std::erase_if(
      samples, [](const Sample& sample) { return sample.cell == "broadcast-n2-threads-64MiB"; });
  const auto section = report_of(study, samples);
  EXPECT_THAT(
      row_text(table_of(section, "collectives-time"), 0), HasSubstr("Gloo: killed by SIGKILL"));
  EXPECT_THAT(
      row_text(table_of(section, "collectives-against-gloo"), 0), HasSubstr("|-|-|-|-|-|-|Gloo:"));
  EXPECT_THAT(
      row_text(table_of(section, "collectives-time"), 9), HasSubstr("threads: not run yet"));
  EXPECT_THAT(table_of(section, "collectives-time").notes,
      Contains(HasSubstr("for want of memory (the limit of")));
  EXPECT_THAT(text_of(section), Not(HasSubstr("all_reduce of 2 ranks:")));
  EXPECT_THAT(text_of(section), HasSubstr("broadcast of 2 ranks: shm is 10.00"));
  EXPECT_THAT(text_of(section), HasSubstr("2 of 8 cells have no number"));
}

TEST(CollectivesStudy, DrawsTheNumbersOfTheTables) {
  const Study study = study_with(false, 2);
  const auto section = report_of(study, made_sweeps(study));
  ASSERT_EQ(section.figures.size(), 6U);
  const auto& time = section.figures.at(0);
  EXPECT_EQ(time.id, "collectives-time-all_reduce-n2");
  ASSERT_EQ(time.series.size(), 5U);
  EXPECT_EQ(time.series[0].name, "shm");
  EXPECT_EQ(time.series[4].name, "predicted by a copy");
  EXPECT_NEAR(time.series[0].points.at(0).y, 5.33, 0.01);
  EXPECT_NEAR(*time.series[0].points.at(0).high, 5.44, 0.01);
  const auto& bus = section.figures.at(1);
  EXPECT_NEAR(bus.series[0].points.at(8).y, 7.69, 0.01);
  EXPECT_LT(*bus.series[0].points.at(8).low, bus.series[0].points.at(8).y);
  const auto& ratio = section.figures.at(2);
  ASSERT_EQ(ratio.series.size(), 4U) << "Gloo is the line at 1";
  EXPECT_NEAR(ratio.series[0].points.at(4).y, 10, 0.01);
}

}  // namespace
}  // namespace lockstep::bench::collectives
