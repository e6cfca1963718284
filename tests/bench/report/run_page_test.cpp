#include "lockstep/report/run/run_page.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <system_error>

#include "tests/bench/metric_lines.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/record/summary.h"

namespace lockstep::bench {
namespace {

using testing::evaluation_line;
using ::testing::HasSubstr;
using testing::train_line;

class RunPage : public ::testing::Test {
 protected:
  RunReport run_of(const std::string& metrics) const {
    std::ofstream(folder_.path() / "metrics.jsonl") << metrics;
    return read_run_report(folder_.path());
  }

  page::Section section_of(const std::string& metrics) const {
    const page::Page page = page_of_run(run_of(metrics));
    page::check_page(page);
    return page.sections.at(0);
  }

  lockstep::testing::TemporaryFolder folder_;
};

const std::string kTwoEpochs =
    train_line(0, 1, 4, 0.5, 1) + evaluation_line(0, 1, 4, "val", 0.25, 0.875) +
    train_line(0, 2, 8, 0.25, 2) + evaluation_line(0, 2, 8, "val", 0.125, 0.9375);

TEST_F(RunPage, PlotsLossAndAccuracyByEpoch) {
  const auto section = section_of(kTwoEpochs);
  ASSERT_EQ(section.figures.size(), 2U);
  const plot::Figure& loss = section.figures[0];
  EXPECT_EQ(loss.x.label, "epoch");
  ASSERT_EQ(loss.series.size(), 2U);
  EXPECT_EQ(loss.series[0].name, "training");
  EXPECT_EQ(loss.series[1].name, "validation");
  EXPECT_EQ(loss.series[0].points.at(1).x, 2);
  EXPECT_EQ(loss.series[0].points.at(1).y, 0.25);
  EXPECT_EQ(loss.series[1].points.at(0).y, 0.25);
  EXPECT_EQ(section.figures[1].series.at(0).points.at(1).y, 0.9375);
  EXPECT_EQ(section.figures[1].y.most, 1) << "no accuracy is larger";
}

TEST_F(RunPage, SaysInWordsWhyItEnded) {
  std::ofstream(folder_.path() / "summary.json")
      << R"({"v":1,"steps":64,"stopped_by":"time","parameters_hash":"6a15a8b1"})";
  const auto section = section_of(kTwoEpochs);
  EXPECT_THAT(section.conclusion.answer, HasSubstr("64 steps, the time limit was reached"));
  using Row = std::vector<std::string>;
  EXPECT_THAT(
      section.tables.at(0).rows, ::testing::Contains(Row{"hash of the parameters", "6a15a8b1"}));
}

TEST_F(RunPage, PlotsOneEpochByStep) {
  const auto section = section_of(train_line(0, 1, 10, 0.5, 1) + train_line(0, 1, 20, 0.25, 2) +
                                  evaluation_line(0, 1, 20, "val", 0.125, 0.9375));
  const plot::Figure& loss = section.figures.at(0);
  EXPECT_EQ(loss.x.label, "step");
  ASSERT_EQ(loss.series.at(0).points.size(), 2U);
  EXPECT_EQ(loss.series[0].points[1].x, 20);
  EXPECT_EQ(loss.series.at(1).points.at(0).x, 20);
}

TEST_F(RunPage, HasFactsAndTheTableOfEpochs) {
  RunSummary summary;
  summary.model = "mnist-small";
  summary.stopped_by = "epochs";
  std::ofstream(folder_.path() / "summary.json") << to_json(summary);
  const auto section = section_of(kTwoEpochs);
  using Row = std::vector<std::string>;
  EXPECT_THAT(section.tables.at(0).rows, ::testing::Contains(Row{"model", "mnist-small"}));
  EXPECT_THAT(section.tables.at(0).rows, ::testing::Contains(Row{"stopped by", "epochs"}));
  EXPECT_THAT(section.conclusion.answer, HasSubstr("epochs"));
  const page::Table& epochs = section.tables.at(1);
  ASSERT_EQ(epochs.rows.size(), 2U);
  EXPECT_EQ(epochs.columns.at(2).head, "train loss");
  EXPECT_EQ(epochs.rows[1].at(4), "0.9375");
  for (const auto& column : epochs.columns) EXPECT_NE(column.head, "val top-5") << "has no value";
}

TEST_F(RunPage, LeavesALossThatDivergedToTheTable) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto section = section_of(train_line(0, 1, 4, 0.5, 1) + train_line(0, 2, 8, nan, 2));
  EXPECT_EQ(section.figures.at(0).series.at(0).points.size(), 1U);
  EXPECT_EQ(section.tables.at(1).rows.at(1).at(2), "nan");
}

TEST_F(RunPage, OfARunWithoutRecordsSaysSo) {
  const auto section = section_of("");
  EXPECT_TRUE(section.figures.empty());
  EXPECT_THAT(section.conclusion.answer, HasSubstr("Nothing is recorded"));
}

TEST_F(RunPage, IsOneFileThatShowsNoMarkupOfTheRun) {
  RunSummary summary;
  summary.model = "<script>alert(1)</script>";
  std::ofstream(folder_.path() / "summary.json") << to_json(summary);
  write_run_page(run_of(kTwoEpochs));
  std::ifstream file(folder_.path() / "report.html");
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("<script>")));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("src=")));
}

TEST_F(RunPage, ThrowsWhereItCannotBeWritten) {
  RunReport run = run_of(kTwoEpochs);
  run.folder.path /= "missing";
  EXPECT_THROW(write_run_page(run), std::system_error);
}

// With --profile a run has a second section, and its page a picture of a step.
TEST_F(RunPage, ShowsTheProfile) {
  RunProfile profile{.precision = "float32"};
  profile.ranks.push_back({.steps = 10,
      .step = 4,
      .lanes = {{.thread = "lockstep-train", .is_main = true}},
      .layers = {{.name = "conv1", .forward = 1, .backward = 2}},
      .timeline = {{.phase = StepPhase::kForward, .name = "conv1", .begin = 0, .end = 4}}});
  std::filesystem::create_directory(folder_.path() / "profile");
  std::ofstream(folder_.path() / "profile/profile.json") << profile_json(profile);
  const RunReport run = run_of(kTwoEpochs);
  const page::Page page = page_of_run(run);
  ASSERT_EQ(page.sections.size(), 2U);
  using Row = std::vector<std::string>;
  EXPECT_THAT(page.sections[1].tables.at(1).rows,
      ::testing::ElementsAre(Row{"conv1", "1.00", "2.00", "0.000"}));
  EXPECT_THAT(page::to_html(page), HasSubstr("<title>forward: conv1, 4 milliseconds</title>"));
  EXPECT_THAT(report_text({run}), HasSubstr("Profile of 10 steps"));
}

}  // namespace
}  // namespace lockstep::bench
