#include "bench/studies/throughput/study.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>

#include "tests/bench/studies/section_text.h"
#include "tests/bench/studies/throughput/made_throughput.h"

namespace lockstep::bench::throughput {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::row_text;
using testing::table_of;
using testing::text_of;

Study quick(int cores = 2) { return make_study({.cores = cores}); }

page::Section report_of(const Study& study, const std::vector<Sample>& samples) {
  const page::Section section = study.report(study, samples);
  testing::expect_whole(section, study.name);
  return section;
}

TEST(Throughput, SetsHereBesidePredictedAndPublished) {
  const auto section = report_of(quick(), made_rounds(quick(), usual_seconds()));
  const auto& cost = table_of(section, "throughput-samples-cost");
  ASSERT_EQ(cost.rows.size(), 8U);
  EXPECT_EQ(row_text(cost, "serial|"),
      "serial|1|2|2|32|224|408|404 to 412|-|3.33|the others are predicted from it|");
  EXPECT_EQ(row_text(cost, "dp|2|2|"), "dp|2|2|1|32|224|255|252 to 258|204|3.34|-|");
  EXPECT_EQ(row_text(cost, "dp|2|8|4|32|224|"), "dp|2|8|4|32|224|224|222 to 227|204|1.23|-|");
  EXPECT_THAT(row_text(cost, "dp|2|8|4|bf16-mixed|224|"),
      HasSubstr("|449|444 to 453|-|0.990|no prediction|"));
  EXPECT_THAT(row_text(cost, "ddp|2|8|"), HasSubstr("|204|-|the study has no ddp|"));
  EXPECT_THAT(row_text(cost, "dp|2|4|2|16-mixed|32|"), HasSubstr("overflow left out 2 of 4 steps"));
}

TEST(Throughput, SetsTheStudysRatios) {
  const auto section = report_of(quick(), made_rounds(quick(), usual_seconds()));
  const auto& ratios = table_of(section, "throughput-ratios");
  ASSERT_EQ(ratios.rows.size(), 6U);
  EXPECT_EQ(row_text(ratios, "one place / dp, same batch|"),
      "one place / dp, same batch|1.60|1.60 to 1.60|2.00|0.997|faster in every round|-|");
  EXPECT_EQ(row_text(ratios, "one place / dp, 4 times the batch|"),
      "one place / dp, 4 times the batch|1.82|1.82 to 1.82|2.00|2.70|faster in every round|-|");
  EXPECT_EQ(row_text(ratios, "dp in float32 / bf16-mixed|"),
      "dp in float32 / bf16-mixed|0.50|0.50 to 0.50|-|1.24|slower in every round|no prediction|");
  EXPECT_THAT(row_text(ratios, "dp in float32 / 16-mixed, 32 px|"), HasSubstr("|0.02|"));
  EXPECT_THAT(
      row_text(ratios, "one place / ddp, same batch|"), HasSubstr("|-|faster in every round|"));
  const auto& ways = table_of(section, "throughput-dp-or-ddp");
  ASSERT_EQ(ways.rows.size(), 2U);
  EXPECT_EQ(row_text(ways, "2|8|"), "2|8|4|32|224|224|204|1.10|1.10 to 1.10|ddp|-|");
}

TEST(Throughput, ConcludesWhichWayPaidByHowMuchAndHowSure) {
  const std::string text = text_of(report_of(quick(), made_rounds(quick(), usual_seconds())));
  EXPECT_THAT(
      text, ContainsRegex("dp on 2 places.*same batch of 2 it is 1.60 times as fast .1.60 to 1.60, "
                          "faster in every round.*4 times that, 8, it is 1.82 times as fast"));
  EXPECT_THAT(text, HasSubstr("dp in 16-mixed on images of 32 x 32 0.02 times"));
  EXPECT_THAT(text, HasSubstr("Half precision does not pay here."));
  EXPECT_THAT(text, HasSubstr("take ddp."));
  EXPECT_THAT(text, HasSubstr("The least a sample cost: 204 ms, by ddp with a batch of 8."));
  EXPECT_THAT(text, HasSubstr("over 3 rounds"));
  EXPECT_THAT(text, HasSubstr("a probability of 75 %"));
  EXPECT_THAT(
      text, HasSubstr("batches of 2 and 8 instead of 128 and 512, 4 steps instead of 5000"));
  EXPECT_THAT(text, HasSubstr("0.997"));
}

TEST(Throughput, ConcludesTheOtherWayFromOtherNumbers) {
  SecondsByCell seconds = usual_seconds();
  seconds["serial-p1-b2-224px-32-s4"] = 0.1;
  seconds["ddp-p2-b2-224px-32-s4"] = 0.5;
  seconds["ddp-p2-b8-224px-32-s4"] = 0.5;
  seconds["dp-p2-b8-224px-bf16-mixed-s4"] = 0.08;
  seconds["dp-p2-b4-32px-16-mixed-s4"] = 0.005;
  const std::string text = text_of(report_of(quick(), made_rounds(quick(), seconds)));
  EXPECT_THAT(text, HasSubstr("0.40 times as fast (0.40 to 0.40, slower in every round)"));
  EXPECT_THAT(text, HasSubstr("Half precision pays here."));
  EXPECT_THAT(text, HasSubstr("take dp."));
  EXPECT_THAT(text, HasSubstr("81.6 ms, by dp with a batch of 8 in bf16-mixed"));
}

TEST(Throughput, NamesThePrecisionsThatPay) {
  SecondsByCell seconds = usual_seconds();
  seconds["dp-p2-b8-224px-bf16-mixed-s4"] = 0.08;
  EXPECT_THAT(text_of(report_of(quick(), made_rounds(quick(), seconds))),
      HasSubstr("Half precision pays in bf16-mixed, not in 16-mixed."));
}

TEST(Throughput, AdvisesNoWayThatAnotherBatchSpeaksAgainst) {
  const std::string small = "ddp-p2-b2-224px-32-s4";
  SecondsByCell seconds = usual_seconds();
  seconds[small] = 0.5;
  auto samples = made_rounds(quick(), seconds);
  EXPECT_THAT(text_of(report_of(quick(), samples)), HasSubstr(": it depends on the batch."));
  std::erase_if(
      samples, [&](const Sample& sample) { return sample.round > 1 && sample.cell == small; });
  EXPECT_THAT(text_of(report_of(quick(), samples)), HasSubstr("; neither is clearly faster."));
}

TEST(Throughput, OneRoundOfOneCellSaysNothingOfTheOthersIntervals) {
  auto samples = made_rounds(quick(), usual_seconds());
  std::erase_if(samples, [](const Sample& sample) {
    return sample.round > 1 && sample.settings.at("precision") == "bf16-mixed";
  });
  EXPECT_THAT(text_of(report_of(quick(), samples)), HasSubstr("over 3 rounds"));
  EXPECT_THAT(text_of(report_of(quick(), samples)), HasSubstr("a probability of 75 %:"));
}

TEST(Throughput, IsNotSureOfOneRound) {
  auto samples = made_rounds(quick(), usual_seconds());
  std::erase_if(samples, [](const Sample& sample) { return sample.round > 1; });
  const auto section = report_of(quick(), samples);
  EXPECT_THAT(text_of(section), HasSubstr("nothing is sure"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("in every round")));
  EXPECT_THAT(text_of(section), Not(HasSubstr("does not pay")));
  EXPECT_THAT(text_of(section), HasSubstr("neither is clearly faster"));
  EXPECT_THAT(row_text(table_of(section, "throughput-ratios"), "one place / dp, same batch|"),
      HasSubstr("|one round|"));
}

TEST(Throughput, SaysWhyACellHasNoNumber) {
  auto samples = made_rounds(quick(), usual_seconds());
  testing::fail_where(samples, "killed by SIGKILL",
      [](const Sample& sample) { return sample.settings.at("way") == "serial"; });
  const auto section = report_of(quick(), samples);
  EXPECT_THAT(
      row_text(table_of(section, "throughput-samples-cost"), "serial|"), HasSubstr("SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "throughput-samples-cost"), "dp|2|2|"),
      HasSubstr("|-|3.34|one place has no number|"));
  EXPECT_THAT(row_text(table_of(section, "throughput-ratios"), "one place / dp, same batch|"),
      HasSubstr("above: killed by SIGKILL"));
  EXPECT_THAT(text_of(section), HasSubstr("dp: no cell has a number"));
  EXPECT_THAT(text_of(section), HasSubstr("1 of 8 cells have no number"));
}

TEST(Throughput, ClaimsNothingFromTheOversubscribed) {
  const Study on_one = quick(1);
  const auto section = report_of(on_one, made_rounds(on_one, usual_seconds()));
  testing::expect_oversubscribed_marks(section);
  EXPECT_THAT(text_of(section), HasSubstr("2 places are more than there are cores"));
  EXPECT_THAT(text_of(section), HasSubstr("dp: no cell has a number, beside one place's"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("surely")));
  EXPECT_THAT(text_of(section), Not(HasSubstr("take d")));
  // Nobody can be faster on the same core.
  EXPECT_THAT(row_text(table_of(section, "throughput-ratios"), "one place / dp, same batch|"),
      HasSubstr("|1.00|"));
}

TEST(Throughput, ReportsEvenWhatHasNoSamples) {
  for (const bool full : {false, true}) {
    const Study study = make_study({.full = full, .cores = 2});
    const auto section = report_of(study, {});
    EXPECT_THAT(text_of(section), HasSubstr("cells have no number"));
  }
}

TEST(Throughput, DrawsTheEstimatesOfTheTables) {
  const auto section = report_of(quick(), made_rounds(quick(), usual_seconds()));
  ASSERT_EQ(section.figures.size(), 2U);
  const plot::Figure& cost = section.figures.at(0);
  ASSERT_EQ(cost.x.categories.size(), 6U) << "images of 224 alone";
  EXPECT_EQ(cost.x.categories.at(0), "one place, batch 2");
  EXPECT_NEAR(cost.series.at(0).points.at(0).y, 408, 1e-6);
  EXPECT_EQ(cost.series.at(1).points.size(), 4U);
  const plot::Figure& ratios = section.figures.at(1);
  EXPECT_EQ(ratios.x.categories.size(), 4U);
  ASSERT_EQ(ratios.series.size(), 4U);
  EXPECT_EQ(ratios.series.at(3).name, "published, dp");
  EXPECT_EQ(ratios.series.at(3).points.size(), 4U);
  EXPECT_NEAR(ratios.series.at(3).points.at(1).y, 2.70, 1e-9);
}

}  // namespace
}  // namespace lockstep::bench::throughput
