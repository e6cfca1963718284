#include "bench/studies/scale_out/study.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/studies/scale_out/made_nodes.h"
#include "tests/bench/studies/section_text.h"

namespace lockstep::bench::scale_out {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::row_text;
using testing::table_of;
using testing::text_of;

page::Section report_of(const Study& study, const std::vector<Sample>& samples) {
  const page::Section section = study.report(study, samples);
  testing::expect_whole(section, study.name);
  return section;
}

TEST(ScaleOutStudy, HasExactlyTheStudysRows) {
  const Study study = made_scale_out(true);
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  std::vector<std::string> heads;
  for (const auto& row : table_of(section, "scale-out-study").rows) heads.push_back(row.front());
  EXPECT_THAT(heads, ElementsAre("Learning Rate (e-4)", "Global Batch Size", "Steps Per Epoch",
                         "Avg Epoch Time (min)", "Epoch Num @ 2 h", "Scaling Efficiency",
                         "Scaling Efficiency, predicted", "Best Validation Loss", "Test Loss",
                         "Top1 Test Accuracy"));
}

TEST(ScaleOutStudy, SetsHereBesidePublished) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  const auto& rows = table_of(section, "scale-out-study");
  const std::string note = "4: oversubscribed; 8: not in --quick; --full measures it|";
  EXPECT_EQ(row_text(rows, 0), "Learning Rate (e-4)|1.00|1.00|2.00|1.41|4.00|2.00|-|2.83|" + note);
  EXPECT_EQ(row_text(rows, 3),
      "Avg Epoch Time (min)|0.05075|8.76|0.03383|5.40|0.04167|3.35|-|2.37|" + note);
  EXPECT_EQ(row_text(rows, 5), "Scaling Efficiency|1.00|1.00|0.75|0.81|0.30|0.65|-|0.46|" + note);
  // 45 MB at 4 Gbit/s beside the backward pass of a step of 0.5 s; the study's own 0.81 s and 558
  // MB at 25 Gbit/s.
  EXPECT_EQ(row_text(rows, 6),
      "Scaling Efficiency, predicted|1.00|1.00|0.95|0.99|0.92|0.98|0.91|0.98|" + note);
  EXPECT_EQ(row_text(rows, 9),
      "Top1 Test Accuracy|25.00 %|86.90 %|25.00 %|87.30 %|25.00 %|87.50 %|-|87.50 %|" + note);
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("mnist-small at 28 pixels")));
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("375")));
  EXPECT_THAT(rows.notes, ::testing::Contains(HasSubstr("which this bench trained before")));
}

TEST(ScaleOutStudy, SetsEfficiencyWithItsInterval) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  const auto& rows = table_of(section, "scale-out-efficiency");
  ASSERT_EQ(rows.rows.size(), 4U);
  EXPECT_EQ(row_text(rows, 1), "2|2.03|2.02 to 2.04|0.75|0.75 to 0.75|0.95|0.81|-|");
  EXPECT_EQ(row_text(rows, 2), "4|2.50|-|0.30|-|0.92|0.65|oversubscribed|");
}

TEST(ScaleOutStudy, ShowsWhatADeathCost) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  const auto& rows = table_of(section, "scale-out-survival");
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(row_text(rows, 1),
      "2 nodes, a worker killed|5.00|1|2.25|0.750|its time|12|2.4500|25.00 %|-|");
  EXPECT_THAT(row_text(rows, 0), HasSubstr("nobody was killed"));
  EXPECT_THAT(text_of(section),
      ContainsRegex("worker of 2 nodes was killed after 5.00 s of 10 s.*1 restart.*"
                    "lost 2.25 s .* loss of 2.4500 .2.4000 without a death"));
}

TEST(ScaleOutStudy, ConcludesWhatPaidByHowMuchAndHowSure) {
  const Study study = made_scale_out();
  const std::string text = text_of(report_of(study, made_node_rounds(study, 2, 2.4)));
  EXPECT_THAT(text, ContainsRegex("2 nodes: 1.50 .1.50 to 1.50. times .*, more in every round"));
  EXPECT_THAT(text,
      ContainsRegex("2 nodes: .*efficiency is 0.75 .0.75 to 0.75., 0.95 predicted, 0.81 pub"));
  EXPECT_THAT(text, HasSubstr("Scaling out paid here, in epochs and in what was learned"));
  EXPECT_THAT(text, HasSubstr("over 2 rounds"));
  EXPECT_THAT(text, HasSubstr("4 nodes are more than there are cores"));
  EXPECT_THAT(text, HasSubstr("1 of 5 cells have no number"));
  EXPECT_THAT(text,
      ContainsRegex("2 nodes: .*loss was 0.9600 .0.9600 to 0.9600. times .*, better in every "));
  EXPECT_THAT(text, Not(HasSubstr("4 nodes: ")));
}

TEST(ScaleOutStudy, ConcludesTheOtherWayFromOtherNumbers) {
  const Study study = made_scale_out();
  const std::string slow = text_of(report_of(study, made_node_rounds(study, 4, 2.6)));
  EXPECT_THAT(slow, HasSubstr("fewer in every round"));
  EXPECT_THAT(slow, HasSubstr("worse in every round"));
  EXPECT_THAT(slow, HasSubstr("Scaling out did not pay here."));
  const std::string fewer = text_of(report_of(study, made_node_rounds(study, 4, 2.4)));
  EXPECT_THAT(fewer, HasSubstr("Fewer epochs were made, and yet more was learned"));
  const std::string no_wiser = text_of(report_of(study, made_node_rounds(study, 2, 2.6)));
  EXPECT_THAT(no_wiser, HasSubstr("Scaling out paid in epochs; that more was learned"));
  auto samples = made_node_rounds(study, 3, 2.5);
  for (Sample& sample : samples) {
    if (sample.round == 2 && sample.places == 2) sample.values[kEpochs] = 1;
  }
  EXPECT_THAT(
      text_of(report_of(study, samples)), HasSubstr("Whether scaling out paid is not shown."));
}

TEST(ScaleOutStudy, IsNotSureOfOneRound) {
  const Study study = made_scale_out();
  const std::string text = text_of(report_of(study, made_node_rounds(study, 2, 2.4, 1)));
  EXPECT_THAT(text, HasSubstr("only one round, not conclusive"));
  EXPECT_THAT(text, HasSubstr("nothing is sure"));
  EXPECT_THAT(text, HasSubstr("Whether scaling out paid is not shown."));
}

TEST(ScaleOutStudy, SaysWhyACellHasNoNumber) {
  const Study study = made_scale_out();
  auto samples = made_node_rounds(study, 2, 2.4);
  testing::fail_where(
      samples, "killed by SIGKILL", [](const Sample& sample) { return sample.places == 2; });
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 0), HasSubstr("2: killed by SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "scale-out-efficiency"), 1), HasSubstr("SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "scale-out-survival"), 1), HasSubstr("SIGKILL"));
  EXPECT_THAT(text_of(section), HasSubstr("No cell with several nodes has a number"));
  EXPECT_THAT(text_of(section), HasSubstr("The run with a killed worker has no number."));
  EXPECT_THAT(text_of(section), HasSubstr("3 of 5 cells have no number"));
}

TEST(ScaleOutStudy, SaysWhereNoWholeEpochWasMade) {
  const Study study = made_scale_out();
  auto samples = made_node_rounds(study, 2, 2.4);
  for (Sample& sample : samples) {
    for (const char* name : {kEpochSeconds, kEpochs, "steps_an_epoch"}) sample.values.erase(name);
  }
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 2),
      HasSubstr("1: no whole epoch in the time"));
  EXPECT_THAT(text_of(section), HasSubstr("No cell with several nodes has a number"));
}

TEST(ScaleOutStudy, EveryTableMarksTheOversubscribed) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  page::Section with_many_nodes = section;
  std::erase_if(with_many_nodes.tables, [](const auto& t) { return t.id == "scale-out-survival"; });
  testing::expect_oversubscribed_marks(with_many_nodes);
  for (const plot::Figure& figure : section.figures) {
    EXPECT_THAT(figure.note, HasSubstr("From 4 nodes on oversubscribed.")) << figure.id;
  }
}

TEST(ScaleOutStudy, ReportsEvenWhatHasNoSamples) {
  for (const bool full : {false, true}) {
    const auto section = report_of(make_study({.full = full, .cores = 2}), {});
    EXPECT_THAT(text_of(section), HasSubstr("5 of 5 cells have no number"));
  }
}

TEST(ScaleOutStudy, DrawsTheCurvesOfTheSamples) {
  const Study study = made_scale_out();
  const auto section = report_of(study, made_node_rounds(study, 2, 2.4));
  ASSERT_EQ(section.figures.size(), 3U);
  const auto& train = section.figures.at(0);
  EXPECT_EQ(train.id, "scale-out-train-loss");
  EXPECT_EQ(train.x.label, "training time [s]");
  ASSERT_EQ(train.series.size(), 4U);
  EXPECT_EQ(train.series[1].name, "2 nodes");
  EXPECT_EQ(train.series[3].name, "2 nodes, a worker killed");
  ASSERT_EQ(train.series[1].points.size(), 20U);
  EXPECT_DOUBLE_EQ(train.series[1].points[0].x, 0.5);
  EXPECT_DOUBLE_EQ(train.series[1].points[0].y, 2.4 + 0.95);
  EXPECT_EQ(section.figures.at(1).series[1].points.size(), 17U) << "from the first validation on";
  const auto& efficiency = section.figures.at(2);
  ASSERT_EQ(efficiency.series.size(), 3U);
  EXPECT_EQ(efficiency.series[1].name, "predicted");
  EXPECT_TRUE(efficiency.series[0].points.at(2).hollow) << "four nodes on two cores";
  const auto hours =
      report_of(made_scale_out(true), made_node_rounds(made_scale_out(true), 600, 2.4));
  EXPECT_EQ(hours.figures.at(0).x.label, "training time [min]");
}

TEST(ScaleOutStudy, PredictsNothingOfARealNetwork) {
  const Study study = make_study({.full = true, .cores = 2, .nodes = {"a", "b"}});
  const auto section = report_of(study, made_node_rounds(study, 600, 2.4));
  EXPECT_THAT(row_text(table_of(section, "scale-out-study"), 6), HasSubstr("predicted|-|1.00|-|"));
  EXPECT_THAT(table_of(section, "scale-out-study").notes,
      ::testing::Contains(HasSubstr("the rate of a real network is not known")));
}

TEST(PredictedEfficiency, IsOfSendingBesideBackward) {
  const plan::WholeStep one{.seconds = 3, .parameter_bytes = 1e9};
  EXPECT_DOUBLE_EQ(predicted_efficiency(1, one, 8e9), 1);
  // Forward takes 1 s and backward 2 s, of which a bucket's sixteenth comes before the first byte
  // can leave; two nodes send 1e9 bytes each.
  EXPECT_DOUBLE_EQ(predicted_efficiency(2, one, 8e8), 3 / (1 + 2.0 / 16 + 10));
  EXPECT_DOUBLE_EQ(predicted_efficiency(2, one, 8e9), 3 / (3 + 1.0 / 16)) << "but the last bucket";
  EXPECT_LT(predicted_efficiency(4, one, 8e8), predicted_efficiency(2, one, 8e8));
}

}  // namespace
}  // namespace lockstep::bench::scale_out
