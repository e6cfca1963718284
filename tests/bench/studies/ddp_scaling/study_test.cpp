#include "bench/studies/ddp_scaling/study.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/ddp_scaling/made_scaling.h"
#include "tests/bench/studies/section_text.h"

#include "lockstep/core/error.h"

namespace lockstep::bench::ddp_scaling {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::row_text;
using testing::table_of;
using testing::text_of;

constexpr int kEnough = 16;  // cores for four places

page::Section report_of(const Study& study, const std::vector<Sample>& samples) {
  const page::Section section = study.report(study, samples);
  testing::expect_whole(section, study.name);
  return section;
}

page::Section report_of(const ScalingSeconds& seconds, int cores = kEnough) {
  const Study study = made_scaling_study(cores);
  return report_of(study, made_scaling_rounds(study, seconds));
}

std::string notes_text(const page::Section& section) {
  std::string text;
  for (const std::string& note : section.tables.front().notes) text += note + "\n";
  return text;
}

TEST(DdpScaling, SetsPublishedBesideHereAndPredicted) {
  const auto section = report_of(usual_scaling());
  const std::string id = "ddp-scaling-run-times";
  EXPECT_EQ(row_text(table_of(section, id), 0),
      "1|1|lockstep train|555|1124|1020|1010 to 1030|-|the baseline of the others|");
  EXPECT_EQ(row_text(table_of(section, id), 1), "2|1|lockstep run|302|586|530|525 to 536|510|-|");
  EXPECT_EQ(row_text(table_of(section, id), 2), "2|1|torchrun|324|592|536|530 to 541|510|-|");
  // 1960 steps of 44.9 MB at 125 MB/s besides.
  EXPECT_EQ(row_text(table_of(section, id), 3),
      "2|2|lockstep hosts|-|788|714|707 to 721|1065|not in the study|");
  EXPECT_EQ(row_text(table_of(section, id), 4), "4|2|lockstep hosts|549|900|816|808 to 824|532|-|");
  EXPECT_EQ(row_text(table_of(section, id), 5),
      "4|2|torchrun on lockstep hosts|549|990|898|889 to 906|532|-|");
  EXPECT_THAT(notes_text(section), HasSubstr("a link of 1gbit each way"));
}

TEST(DdpScaling, ReportsSpeedUpsAndWhatStartingCosts) {
  const auto section = report_of(usual_scaling());
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-speed-up"), 0),
      "2|1|lockstep run|1.84|1.92|1.92 to 1.92|2.00|96 %|-|");
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-speed-up"), 3),
      "4|2|lockstep hosts|1.01|1.25|1.25 to 1.25|1.92|31 %|-|");
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-epochs"), 2),
      "2|1|torchrun|54.5|53.5|934|4.200|5.36|0.250|3.00|-|");
}

TEST(DdpScaling, ConcludesWhatPaid) {
  const std::string text = text_of(report_of(usual_scaling()));
  EXPECT_THAT(
      text, ContainsRegex("2 places on one node.* lockstep run.* 1.92 times .1.92 to 1.92. as fast "
                          "as one place: faster in every round"));
  EXPECT_THAT(text, HasSubstr("1.01 times (1.01 to 1.01) as long under torchrun"));
  EXPECT_THAT(text, HasSubstr("1.10 times (1.10 to 1.10) as long by torchrun on each as by"));
  EXPECT_THAT(text, ContainsRegex("1.35 times .* on two nodes as on one: longer in every round"));
  EXPECT_THAT(text, HasSubstr("Four places on two nodes took 1.54 times"));
  EXPECT_THAT(text, HasSubstr("stay on one node"));
  EXPECT_THAT(text, HasSubstr("over 3 rounds"));
  EXPECT_THAT(text, HasSubstr("Gradients alone take 528 s"));
  EXPECT_THAT(text, HasSubstr("epochs of one place took 1124 s, of which training 1020 s"));
}

TEST(DdpScaling, ConcludesTheOtherWayFromOtherNumbers) {
  auto seconds = usual_scaling();
  seconds["1 2 run"] = 1200;
  seconds["2 2 hosts"] = 1000;
  seconds["2 4 hosts"] = 300;
  const std::string text = text_of(report_of(seconds));
  EXPECT_THAT(
      text, HasSubstr("0.83 times (0.83 to 0.83) as fast as one place: slower in every round"));
  EXPECT_THAT(text, HasSubstr("under torchrun as under lockstep run: shorter in every round"));
  EXPECT_THAT(text, HasSubstr("on two nodes as on one: shorter in every round"));
  EXPECT_THAT(text, HasSubstr("the second node pays"));
}

TEST(DdpScaling, FindsNoDifferenceWhereIntervalsCross) {
  const Study study = made_scaling_study(kEnough);
  auto samples = made_scaling_rounds(study, usual_scaling());
  for (Sample& sample : samples) {
    const bool torchrun = sample.settings.at("started by") == "torchrun";
    if (torchrun && sample.round == 2) sample.values["run_seconds"] = 400;
  }
  EXPECT_THAT(text_of(report_of(study, samples)),
      HasSubstr("under lockstep run: no significant difference"));
}

TEST(DdpScaling, ClaimsNothingOfMorePlacesThanCores) {
  const auto section = report_of(usual_scaling(), 2);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 4), HasSubstr("oversubscribed"));
  EXPECT_THAT(text_of(section), HasSubstr("not a fair test"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("Four places on two nodes took")));
  EXPECT_THAT(notes_text(section), HasSubstr("oversubscribed: more places than cores"));
}

TEST(DdpScaling, SaysWhyACellHasNoNumber) {
  Study study = made_scaling_study(kEnough);
  auto seconds = usual_scaling();
  seconds.erase("1 2 torchrun");
  study.cells[2].not_measurable = "there is no torchrun in PATH";
  auto samples = made_scaling_rounds(study, seconds);
  testing::fail_where(samples, "killed by SIGKILL",
      [](const Sample& sample) { return sample.settings.at("nodes") == "2"; });
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 2), HasSubstr("no torchrun"));
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 3), HasSubstr("SIGKILL"));
  EXPECT_THAT(text_of(section), HasSubstr("4 of 6 cells have no number"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("torchrun as under")));
}

TEST(DdpScaling, IsNotSureOfOneRound) {
  const Study study = made_scaling_study(kEnough);
  auto samples = made_scaling_rounds(study, usual_scaling());
  samples.resize(study.cells.size());
  const auto section = report_of(study, samples);
  EXPECT_THAT(text_of(section), HasSubstr("only one round, not conclusive"));
  EXPECT_THAT(text_of(section), HasSubstr("nothing is sure"));
}

TEST(DdpScaling, ReportsEvenWhatHasNoSamples) {
  const auto section = report_of(make_study({.cores = 2}), {});
  EXPECT_THAT(text_of(section), HasSubstr("No cell with several places has a number"));
}

TEST(DdpScaling, SaysWhatIsExtrapolatedAndSmaller) {
  Study study = make_study({.cores = 2});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  auto samples = made_scaling_rounds(study, usual_scaling());
  for (Sample& sample : samples) {
    sample.values["epoch_share"] = 0.02;
    sample.values["evaluated_images"] = 1024;
  }
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "ddp-scaling-run-times"), 1),
      HasSubstr("extrapolated from 2.0 %"));
  EXPECT_THAT(notes_text(section), HasSubstr("32 x 32 pixels in place of the study's 224"));
  EXPECT_THAT(text_of(section), HasSubstr("extrapolated from 2.0 %"));
  EXPECT_THAT(notes_text(section),
      HasSubstr("evaluation: extrapolated from 1024 images to 10000; a checkpoint"));
}

TEST(DdpScaling, NamesRealHostsAndPredictsNothingOfTheirLink) {
  Study study = make_study({.full = true, .cores = 2, .nodes = {"red", "blue"}});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  const auto section = report_of(study, made_scaling_rounds(study, usual_scaling()));
  // Two places on each of two machines with two cores each are no more than there are.
  EXPECT_EQ(row_text(table_of(section, "ddp-scaling-run-times"), 4),
      "4|2|lockstep hosts|549|900|816|808 to 824|-|link's rate not known: no prediction|");
  EXPECT_THAT(notes_text(section), HasSubstr("the real hosts that were named"));
}

}  // namespace
}  // namespace lockstep::bench::ddp_scaling
