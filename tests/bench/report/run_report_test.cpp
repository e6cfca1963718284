#include "lockstep/report/run/run_report.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/bench/metric_lines.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/record/summary.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

using testing::evaluation_line;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::train_line;

class Report : public ::testing::Test {
 protected:
  std::filesystem::path run(const std::string& name, const std::string& metrics) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path);
    std::ofstream(path / "metrics.jsonl") << metrics;
    return path;
  }

  // Two epochs; killed in the second.
  std::filesystem::path killed() {
    return run("killed",
        train_line(0, 1, 4, 0.5, 1) + evaluation_line(0, 1, 4, "val", 0.25, 0.875) +
            train_line(0, 2, 6, 0.4, 2) + train_line(1, 2, 6, 0.4, 12) +
            train_line(1, 2, 8, 0.3, 13) + evaluation_line(1, 2, 8, "val", 0.125, 0.9375) +
            train_line(1, 3, 12, 0.2, 14).substr(0, 30));
  }

  static std::string refusal(const std::filesystem::path& path) {
    return lockstep::testing::message_of<DataError>([&] { read_run_report(path); });
  }

  lockstep::testing::TemporaryFolder folder_;
};

TEST_F(Report, SetsARunAsATable) {
  const auto path = killed();
  std::filesystem::create_directories(path / "snapshots/step-00000004");
  std::filesystem::create_directories(path / "snapshots/step-00000008");
  std::filesystem::create_directories(path / "snapshots/step-00000009");
  std::filesystem::create_directories(path / "snapshots/.step-00000010.Ab12");
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
  RunSummary summary;
  summary.model = "toy";
  summary.data = "mock";
  summary.parallel = "ddp";
  summary.world_size = 2;
  summary.batch_size = 16;
  summary.precision = "32";
  summary.best = BestEpoch{2, 0.125};
  summary.steps = 8;
  summary.stopped_by = "epochs";
  summary.parameters_hash = "abc";
  summary.peak_memory_bytes = 3000000000;
  summary.best_test = {.loss = 0.5, .top1 = 0.75};
  std::ofstream(path / "summary.json") << to_json(summary);
  EXPECT_EQ(nlohmann::json::parse(
                report_json({read_run_report(path)}))["runs"][0]["summary"]["peak_memory_bytes"],
      3000000000);
  const std::string text = report_text({read_run_report(path)});
  EXPECT_THAT(text, HasSubstr("\n  toy on mock, ddp, world size 2, 16 a batch, precision 32\n"));
  EXPECT_THAT(text, HasSubstr("stopped by epochs at step 8, code 0\n"));
  EXPECT_THAT(text, HasSubstr("test accuracy of the best weights 0.7500\n"));
  EXPECT_EQ(nlohmann::json::parse(
                report_json({read_run_report(path)}))["runs"][0]["summary"]["best_test_accuracy"],
      0.75);
  EXPECT_THAT(text, HasSubstr("best loss 0.1250 in epoch 2\nhash of the parameters abc\n"));
  summary.steps = 6;
  std::ofstream(path / "summary.json") << to_json(summary);
  EXPECT_THAT(report_text({read_run_report(path)}),
      HasSubstr("at step 6, code 0; that was before the last records, at step 8\n"));
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
  const auto why = [](const std::string& text) -> std::string {
    try {
      parse_summary(text, "s");
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(why(R"({"v":1,"new":[{}]})"), "nothing was thrown");
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
  TextTable table({"run", "n", "none"}, true);
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

}  // namespace
}  // namespace lockstep::bench
