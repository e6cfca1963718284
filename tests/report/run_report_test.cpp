#include "lockstep/report/run/run_report.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tests/record/metric_lines.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/event_file.h"
#include "lockstep/record/metrics_writer.h"
#include "lockstep/record/summary.h"
#include "lockstep/report/text_table.h"

namespace lockstep {
namespace {

using testing::evaluation_line;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::train_line;

namespace fs = std::filesystem;

using Row = std::vector<std::string>;

class Report : public ::testing::Test {
 protected:
  fs::path run(const std::string& name, const std::string& metrics) const {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path);
    std::ofstream(path / "metrics.jsonl") << metrics;
    return path;
  }

  RunReport run_of(const std::string& metrics, const std::string& name = "") const {
    return read_run_report(run(name, metrics));
  }

  page::Section section_of(const std::string& metrics) const {
    const page::Page page = page_of_run(run_of(metrics));
    page::check_page(page);
    return page.sections.at(0);
  }

  // Two epochs; killed in the second.
  fs::path killed() {
    return run("killed",
        train_line(0, 1, 4, 0.5, 1) + evaluation_line(0, 1, 4, "val", 0.25, 0.875) +
            train_line(0, 2, 6, 0.4, 2) + train_line(1, 2, 6, 0.4, 12) +
            train_line(1, 2, 8, 0.3, 13) + evaluation_line(1, 2, 8, "val", 0.125, 0.9375) +
            train_line(1, 3, 12, 0.2, 14).substr(0, 30));
  }

  static std::string refusal(const fs::path& path) {
    return lockstep::testing::message_of<DataError>([&] { read_run_report(path); });
  }

  lockstep::testing::TemporaryFolder folder_;
};
using RunPage = Report;
using RunEvents = Report;

TEST_F(Report, SetsARunAsATable) {
  const auto path = killed();
  fs::create_directories(path / "snapshots/step-00000004");
  fs::create_directories(path / "snapshots/step-00000008");
  fs::create_directories(path / "snapshots/step-00000009");
  fs::create_directories(path / "snapshots/.step-00000010.Ab12");
  std::ofstream(path / "snapshots/step-00000004/manifest.json") << "{}";
  std::ofstream(path / "snapshots/step-00000008/manifest.json") << "{}";
  std::ofstream(path / "snapshots/best") << "step-00000004\n";
  EXPECT_EQ(report_text({read_run_report(path)}), path.string() +
                                                      R"(
epoch  step  train loss  val loss  val accuracy   lr  samples/s  seconds
    1     4      0.5000    0.2500        0.8750  0.1        100     2.00
  restart 1 in epoch 2, 10.0 s after the record before: 1 record up to step 6 lost and made again, from step 6 on
    2     8      0.3500    0.1250        0.9375  0.1        100     2.00
no summary.json: it is still running, or its processes were killed
snapshots at step 4 (best), 8
)" + path.string() + "/metrics.jsonl: line 7: incomplete because its writer died; skipped\n");
}

TEST_F(Report, TellsHowTheRunEnded) {
  const auto path = killed();
  RunSummary summary{.model = "toy",
      .data = "mock",
      .parallel = "ddp",
      .world_size = 2,
      .batch_size = 16,
      .precision = "32",
      .epochs = {},
      .best = BestEpoch{2, 0.125},
      .best_test = {.loss = 0.5, .top1 = 0.75},
      .steps = 8,
      .stopped_by = "epochs",
      .parameters_hash = "abc",
      .peak_memory_bytes = 3000000000};
  std::ofstream(path / "summary.json") << to_json(summary);
  const auto json = nlohmann::json::parse(report_json({read_run_report(path)}))["runs"][0];
  EXPECT_EQ(json["summary"]["peak_memory_bytes"], 3000000000);
  EXPECT_EQ(json["summary"]["best_test_accuracy"], 0.75);
  const std::string text = report_text({read_run_report(path)});
  EXPECT_THAT(text, HasSubstr("\n  toy on mock, ddp, world size 2, 16 a batch, precision 32\n"));
  EXPECT_THAT(text, HasSubstr("stopped by epochs at step 8, code 0\n"));
  EXPECT_THAT(text, HasSubstr("test accuracy of the best weights 0.7500\n"));
  EXPECT_THAT(text, HasSubstr("best loss 0.1250 in epoch 2\nhash of the parameters abc\n"));
  summary.steps = 6;
  std::ofstream(path / "summary.json") << to_json(summary);
  EXPECT_THAT(report_text({read_run_report(path)}),
      HasSubstr("at step 6, code 0; that was before the last records, at step 8\n"));
}

// Two epochs of a regression that has a number of its own too.
std::string regression_lines() {
  std::string lines;
  for (const std::int64_t epoch : {1, 2}) {
    const MetricRecord record{.epoch = epoch,
        .step = 4 * epoch,
        .split = "val",
        .scores = {.loss = 0.25, .mae = 0.5, .rmse = 0.75, .more = {{"far off", 3}}}};
    lines += train_line(0, epoch, 4 * epoch, 0.5, 1) +
             json_line(record, "2026-01-31T00:01:00.000Z") + "\n";
  }
  return lines;
}

TEST_F(Report, ShowsWhatAnotherTaskMeasures) {
  const RunReport run = run_of(regression_lines());
  EXPECT_THAT(report_text({run}),
      HasSubstr("val loss  val MAE  val RMSE   lr  samples/s  seconds  val far off\n"));
  const auto epoch = nlohmann::json::parse(report_json({run}))["runs"][0]["epochs"][1];
  EXPECT_EQ(epoch["val_rmse"], 0.75);
  EXPECT_EQ(epoch["val_far off"], 3);
  EXPECT_FALSE(epoch.contains("val_r2"));
}

TEST_F(RunPage, HasAFigureForEachKindOfScore) {
  std::vector<std::string> titles, curves;
  for (const plot::Figure& figure : section_of(regression_lines()).figures) {
    titles.push_back(figure.title);
    for (const plot::Series& series : figure.series) curves.push_back(series.name);
  }
  EXPECT_THAT(
      titles, ::testing::ElementsAre("Loss by epoch", "Error by epoch", "Far off by epoch"));
  EXPECT_THAT(curves, ::testing::ElementsAre("training", "validation", "validation, MAE",
                          "validation, RMSE", "validation"));
}

TEST_F(Report, TakesTheExactLossOfAnEpochThatTheSummaryCovers) {
  const auto path = killed();
  RunSummary summary;
  summary.epochs = {{.epoch = 1, .train_loss = 0.75}, {.epoch = 2, .train_loss = 0.25}};
  summary.steps = 6;
  std::ofstream(path / "summary.json") << to_json(summary);
  const auto epochs = read_run_report(path).history.epochs;
  EXPECT_EQ(epochs.at(0).train_loss, 0.75);
  EXPECT_NEAR(epochs.at(1).train_loss.value(), 0.35, 1e-12) << "epoch 2 had not ended then";
}

TEST_F(Report, SetsSeveralRunsSideBySide) {
  const auto first = killed();
  const auto second = run("other", train_line(0, 1, 4, 0.75, 1));
  const std::string text = report_text({read_run_report(first), read_run_report(second)});
  EXPECT_THAT(text, HasSubstr("\ntrain loss\nepoch  " + first.string() + "  " + second.string()));
  EXPECT_THAT(text, ::testing::ContainsRegex("\n    1 +0.5000 +0.7500\n    2 +0.3500 +-\n"));
  EXPECT_THAT(text, HasSubstr("\nval accuracy\n"));
  EXPECT_THAT(text, Not(HasSubstr("EMA")));
}

TEST_F(Report, GivesEveryNumberAsJson) {
  const auto object = nlohmann::json::parse(report_json({read_run_report(killed())}));
  EXPECT_EQ(object["v"], 1);
  const auto& run = object["runs"][0];
  EXPECT_EQ(run["epochs"][1]["train_loss"], 0.35);
  EXPECT_EQ(run["epochs"][0]["val_accuracy"], 0.875);
  EXPECT_EQ(run["restarts"][0]["made_again"], 1);
  EXPECT_EQ(run["left_out"].size(), 1U);
  EXPECT_TRUE(run["summary"].is_null());
}

TEST_F(Report, WritesNanAsNullAndNamesIt) {
  const auto path = run("nan", train_line(0, 1, 4, std::nan(""), 1));
  EXPECT_THAT(report_text({read_run_report(path)}), HasSubstr("nan"));
  const auto epoch =
      nlohmann::json::parse(report_json({read_run_report(path)}))["runs"][0]["epochs"][0];
  EXPECT_TRUE(epoch["train_loss"].is_null());
  EXPECT_EQ(epoch["nonfinite"], nlohmann::json({"train_loss"}));
}

TEST_F(Report, RefusesWhatIsNoRun) {
  const auto none = folder_.path() / "none";
  EXPECT_EQ(refusal(none), none.string() + ": there is no such folder");
  EXPECT_EQ(refusal(folder_.path()),
      folder_.path().string() + ": holds no metrics.jsonl, so it is no run's folder");
}

TEST_F(Report, RefusesASummaryThatIsNotAsTheFormatSays) {
  const auto why = [](const std::string& text) {
    return lockstep::testing::message_of<DataError>([&] { parse_summary(text, "s"); });
  };
  EXPECT_NO_THROW(parse_summary(R"({"v":1,"new":[{}]})", "s"));
  EXPECT_EQ(why(""), "s: offset 0: is not JSON in UTF-8");
  EXPECT_EQ(why(R"({"v":1)"), "s: offset 6: is not JSON in UTF-8");
  EXPECT_EQ(why("[1]"), "s: it must be a JSON object: [1]");
  EXPECT_EQ(why(R"({"v":1,"v":1})"), "s: a key comes twice: \"v\"");
  EXPECT_EQ(why("{}"), "s: v must be 1, the version that this program reads: it is missing");
  EXPECT_EQ(why(R"({"v":2})"), "s: v must be 1, the version that this program reads: 2");
  EXPECT_EQ(why(R"({"v":1,"peak_memory_bytes":"1 GB"})"),
      "s: peak_memory_bytes must be a whole number of at least 0: \"1 GB\"");
  EXPECT_EQ(parse_summary(R"({"v":1,"peak_memory_bytes":5})", "s").peak_memory_bytes, 5);
  EXPECT_FALSE(parse_summary(R"({"v":1,"peak_memory_bytes":null})", "s").peak_memory_bytes);
  EXPECT_EQ(why(R"({"v":1,"steps":-1})"), "s: steps must be a whole number of at least 0: -1");
  EXPECT_EQ(why(R"({"v":1,"steps":1.5})"), "s: steps must be a whole number of at least 0: 1.5");
  EXPECT_EQ(why(R"({"v":1,"model":7})"), "s: model must be a text: 7");
  EXPECT_EQ(why(R"({"v":1,"test_loss":"x"})"), "s: test_loss must be a finite number: \"x\"");
  EXPECT_EQ(why(R"({"v":1,"epochs":7})"), "s: epochs must be a list of objects: 7");
  EXPECT_EQ(why(R"({"v":1,"epochs":[7]})"), "s: epochs[0] must be a JSON object: 7");
  EXPECT_EQ(why(R"({"v":1,"epochs":[{"epoch":-1}]})"),
      "s: epochs[0].epoch must be a whole number of at least 0: -1");
  EXPECT_EQ(why(R"({"v":1,"best":7})"), "s: best must be a JSON object: 7");
  EXPECT_EQ(why(R"({"v":1,"best":{"value":""}})"), "s: best.value must be a finite number: \"\"");
  EXPECT_EQ(why(R"({"v":1,"x":)" + std::string(40, '[') + std::string(40, ']') + "}"),
      "s: more than 16 objects and lists within each other");
}

TEST_F(Report, KeepsATerminalSafeFromWhatFilesSay) {
  const auto path = killed();
  std::ofstream(path / "summary.json") << R"({"v":1,"model":"a\u001b[2Jb"})";
  const std::string text = report_text({read_run_report(path)});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\"a\\x1b[2Jb\" on -"));
}

TEST_F(Report, WritesWhatPeopleCallThings) {
  const auto path = killed();
  std::ofstream(path / "summary.json") << R"({"v":1,"model":"größer","data":"my set"})";
  EXPECT_THAT(report_text({read_run_report(path)}), HasSubstr("  größer on \"my set\""));
}

TEST(TextTable, SetsNumbersToTheRightAndNamesToTheLeft) {
  TextTable table({"run", "n", "none"}, {true});
  table.add_row({"a", "1", "-"});
  table.add_row({"longer", "100", "-"});
  EXPECT_EQ(table.text(), "run       n\na         1\nlonger  100\n");
}

TEST(Cell, KeepsColumnsNarrow) {
  EXPECT_EQ(cell(std::nullopt, 4), "-");
  EXPECT_EQ(cell(0.5, 4), "0.5000");
  EXPECT_EQ(cell(0.0, 4), "0.0000");
  EXPECT_EQ(cell(2e-9, 4), "2e-09");
  EXPECT_EQ(cell(-3e12, 2), "-3e+12");
  EXPECT_EQ(cell(59193.4, 0), "59193");
  EXPECT_EQ(short_cell(4e-7), "4e-07");
  EXPECT_EQ(short_cell(10207.6), "10208");
  EXPECT_EQ(short_cell(0.5), "0.5");
}

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

// Else its curves would have both names.
TEST(ScoresOfAFigure, AreCalledAsItWhereThereIsOne) {
  for (const ScoreName& score : kScores) {
    const std::string figure = score.figure;
    const auto is_in_it = [&](const ScoreName& other) { return figure == other.figure; };
    if (std::ranges::count_if(kScores, is_in_it) == 1) EXPECT_EQ(figure, score.title);
  }
}

TEST_F(RunPage, SaysInWordsWhyItEnded) {
  std::ofstream(folder_.path() / "summary.json")
      << R"({"v":1,"steps":64,"stopped_by":"time","parameters_hash":"6a15a8b1"})";
  const auto section = section_of(kTwoEpochs);
  EXPECT_THAT(section.conclusion.answer, HasSubstr("64 steps, the time limit was reached"));
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
  const std::string html = lockstep::testing::contents(folder_.path() / "report.html");
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
  fs::create_directory(folder_.path() / "profile");
  std::ofstream(folder_.path() / "profile/profile.json") << profile_json(profile);
  const RunReport run = run_of(kTwoEpochs);
  const page::Page page = page_of_run(run);
  ASSERT_EQ(page.sections.size(), 2U);
  EXPECT_THAT(page.sections[1].tables.at(1).rows,
      ::testing::ElementsAre(Row{"conv1", "1.00", "2.00", "0.000"}));
  EXPECT_THAT(page::to_html(page), HasSubstr("<title>forward: conv1, 4 milliseconds</title>"));
  EXPECT_THAT(report_text({run}), HasSubstr("Profile of 10 steps"));
}

constexpr double kMidnight = 1769817600;  // 2026-01-31T00:00:00Z

std::string event_of(double time, std::int64_t step, double loss) {
  return scalars_event({time, step}, {{"train/loss", loss}, {"train/lr", 0.1},
                                         {"train/samples_per_s", 100}, {"train/step_ms", 500}});
}

TEST_F(RunEvents, AreOneCurveOverRestarts) {
  const auto run =
      run_of(train_line(0, 1, 4, 0.5, 1) + train_line(0, 1, 8, 0.25, 2) +
             train_line(1, 1, 8, 0.125, 9) + evaluation_line(1, 1, 8, "val", 0.25, 0.875));
  EXPECT_EQ(events_of_run(run),
      version_event({kMidnight + 1}) + event_of(kMidnight + 1, 4, 0.5) +
          event_of(kMidnight + 9, 8, 0.125) +
          scalars_event({kMidnight + 60, 8}, {{"val/loss", 0.25}, {"val/accuracy", 0.875}}));
}

TEST_F(RunEvents, AreWrittenByNameOfTheRunAndWrittenAgain) {
  const auto first = run_of(train_line(0, 1, 4, 0.5, 1), "a");
  const auto files = write_run_events({first, run_of("", "b")}, folder_.path() / "events");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0], folder_.path() / "events/a/events.out.tfevents.1769817601.lockstep");
  EXPECT_EQ(files[1].parent_path(), folder_.path() / "events/b");
  EXPECT_EQ(lockstep::testing::contents(files[0]), events_of_run(first));
  const auto longer = run_of(train_line(0, 1, 4, 0.5, 1) + train_line(0, 1, 8, 0.5, 2), "a");
  EXPECT_EQ(write_run_events({longer}, folder_.path() / "events").at(0), files[0]);
  EXPECT_EQ(lockstep::testing::contents(files[0]), events_of_run(longer));
}

TEST_F(RunEvents, RunsOfOneNameAndFoldersOfRunsAreRefusedBeforeAnythingIsWritten) {
  const auto a = run_of(train_line(0, 1, 4, 0.5, 1), "x/run");
  const auto b = run_of(train_line(0, 1, 4, 0.5, 1), "y/run");
  const auto message = [&](const std::vector<RunReport>& runs, const char* directory) {
    return lockstep::testing::message_of<InvalidArgument>(
        [&] { write_run_events(runs, folder_.path() / directory); });
  };
  EXPECT_THAT(message({a, b}, "events"), HasSubstr("called run"));
  EXPECT_FALSE(fs::exists(folder_.path() / "events"));
  EXPECT_THAT(message({a}, "x"), HasSubstr("name another DIR"));
}

}  // namespace
}  // namespace lockstep
