#include "lockstep/record/metrics_reader.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/record/metric_lines.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/record/run_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::evaluation_line;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::train_line;

MetricsFile read(const std::string& text) { return parse_metrics(text, "m"); }

std::string refusal(const std::string& text) {
  return lockstep::testing::message_of<DataError>([&] { read(text); });
}

// A line that is right, with this in place of `"step":7`, and more after it.
std::string with(const std::string& fields) {
  return R"({"v":1,"rank":0,"restart":0,"epoch":1,"split":"train",)" + fields + "}\n";
}

TEST(MetricsReader, ReadsARunOfAnEarlierVersion) {
  const RunFolder run = read_run_folder(LOCKSTEP_SOURCE_DIR "/tests/golden/runs/serial");
  std::ifstream file(run.path / "metrics.jsonl");
  std::string line;
  for (const MetricLine& metric : run.metrics.lines) {
    ASSERT_TRUE(std::getline(file, line));
    const auto time = nlohmann::json::parse(line)["time"].get<std::string>();
    EXPECT_EQ(json_line(metric.record, time), line) << "written again";
  }
  EXPECT_EQ(run.metrics.lines.size(), 8U);
  EXPECT_EQ(run.metrics.lines.back().record.scores.top5, 0.51171875);
  EXPECT_EQ(run.summary->test, (Scores{2.315499573945999, 0.109375, 0.53125}));
  EXPECT_EQ(run.summary->best_epoch, 2);
  EXPECT_EQ(run.summary->epochs.size(), 2U);
}

TEST(MetricsReader, ReadsWhatTheWriterWrites) {
  const MetricRecord written{.elapsed = 1.5,
      .rank = 3,
      .restart = 2,
      .epoch = 4,
      .step = 300,
      .split = "val-ema",
      .scores = {.loss = 0.1, .top1 = 1.0 / 3, .top5 = 0.75},
      .lr = 4e-7,
      .samples_per_s = 50000.5,
      .step_ms = 2.5,
      .data_ms = 0.5,
      .comm_ms = 0.25,
      .loss_scale = 65536.0};
  const auto file = read(json_line(written, "2026-01-31T12:00:00.123Z") + "\n");
  ASSERT_EQ(file.lines.size(), 1U);
  const MetricLine& line = file.lines.front();
  EXPECT_EQ(json_line(line.record, ""), json_line(written, ""));
  EXPECT_DOUBLE_EQ(line.unix_seconds.value(), 1769860800.123);
  EXPECT_THAT(file.left_out, IsEmpty());
}

TEST(MetricsReader, ReadsWhatAnyTaskMeasures) {
  const std::string time = "2026-01-31T12:00:00.123Z";
  MetricRecord written{.epoch = 4,
      .step = 300,
      .split = "val",
      .scores = {.loss = 0.1, .mae = 0.25, .r2 = -1.5, .more = {{"off", 2}}}};
  const Scores read_back = read(json_line(written, time)).lines.at(0).record.scores;
  EXPECT_EQ(read_back, written.scores);
  written.scores.more["off"] = std::nan("");
  EXPECT_TRUE(std::isnan(read(json_line(written, time)).lines.at(0).record.scores.more.at("off")));
}

TEST(MetricsReader, GivesNanForWhatWasNotFinite) {
  MetricRecord written{.epoch = 1, .step = 2, .split = "train", .scores = {.loss = std::nan("")}};
  const auto line = read(json_line(written, "2026-01-31T12:00:00.123Z")).lines.at(0);
  EXPECT_TRUE(std::isnan(line.record.scores.loss.value()));
  EXPECT_FALSE(line.record.scores.top1) << "not measured is nothing";
}

TEST(MetricsReader, IgnoresKeysThatItDoesNotKnow) {
  const auto file = read(with(
      R"("step":7,"new":1,"more":{"step":9,"deep":[[null,true,-1.5,"x"]]},"list":["loss"],"nonfinite":["new"])"));
  EXPECT_EQ(file.lines.at(0).record.step, 7);
  EXPECT_FALSE(file.lines.at(0).record.scores.loss);
}

TEST(MetricsReader, LeavesOutATornLastLineAndNamesIt) {
  const std::string whole = train_line(0, 1, 1, 0.5, 1), second = train_line(0, 1, 2, 0.5, 2);
  for (std::size_t size = 1; size + 1 < second.size(); ++size) {
    const auto file = read(whole + second.substr(0, size));
    ASSERT_EQ(file.lines.size(), 1U) << size;
    ASSERT_THAT(
        file.left_out, ElementsAre("m: line 2: incomplete because its writer died; skipped"));
  }
  EXPECT_EQ(read(whole + second.substr(0, second.size() - 1)).lines.size(), 2U);
  EXPECT_EQ(read(whole + std::string(64, '\0')).left_out.size(), 1U) << "zeros after a power cut";
}

TEST(MetricsReader, LeavesOutATornLineThatALaterRestartFollows) {
  const std::string torn = train_line(0, 1, 2, 0.5, 2).substr(0, 40) + "\n";
  const auto file = read(train_line(0, 1, 1, 0.5, 1) + torn + train_line(1, 1, 2, 0.5, 9));
  EXPECT_EQ(file.lines.size(), 2U);
  EXPECT_THAT(file.left_out, ElementsAre(HasSubstr("m: line 2: incomplete")));
}

TEST(MetricsReader, RefusesATornLineWhereNoWriterCanHaveEnded) {
  const std::string torn = train_line(0, 1, 2, 0.5, 2).substr(0, 40) + "\n";
  const std::string whole = train_line(0, 1, 1, 0.5, 1);
  EXPECT_EQ(refusal(whole + torn + train_line(0, 1, 3, 0.5, 3)), "m: line 2: is not JSON in UTF-8");
  EXPECT_EQ(refusal(torn + torn), "m: line 1: is not JSON in UTF-8");
  EXPECT_EQ(read(whole + torn + torn).left_out.size(), 2U) << "two lives may have torn one each";
  EXPECT_EQ(refusal("\n\n" + whole), "m: line 1: is not JSON in UTF-8");
}

TEST(MetricsReader, RefusesWhatIsNotAsTheFormatSays) {
  for (const auto& [line, reason] :
      std::vector<std::pair<std::string, std::string>>{{"[1]", "it must be a JSON object: [1]"},
          {"7", "it must be a JSON object: 7"}, {"{}", "v must be there: it is missing"},
          {with("\"x\":1"), "step must be there: it is missing"},
          {with("\"step\":1,\"step\":1"), "a key comes twice: \"step\""},
          {with("\"step\":-1"), "step must be a whole number of at least 0: -1"},
          {with("\"step\":1.0"), "step must be a whole number of at least 0: 1.0"},
          {with("\"step\":9223372036854775808"),
              "step must be a whole number of at least 0: 9223372036854775808"},
          {with("\"step\":null"), "step must be a whole number of at least 0: null"},
          {with("\"step\":1,\"loss\":\"0.5\""), "loss must be a finite number: \"0.5\""},
          {with("\"step\":1,\"loss\":2,\"nonfinite\":[\"loss\"]"),
              "loss must be null, as it is listed in nonfinite: 2"},
          {with("\"step\":1,\"nonfinite\":7"), "nonfinite must be a list of texts: 7"},
          {with("\"step\":1,\"new\":" + std::string(40, '[') + std::string(40, ']')),
              "more than 16 objects and lists within each other"},
          {std::string(70000, ' '), "70000 bytes are too many for a line"},
          {R"({"v":1,"rank":2147483648,"restart":0,"epoch":1,"step":1,"split":"train"})",
              "rank must be a whole number from 0 to 2147483647: 2147483648"},
          {R"({"v":2,"rank":0})",
              "v must be 1, the version that this program reads; a newer one may read both: 2"}})
    EXPECT_EQ(refusal(line), "m: line 1: " + reason);
  EXPECT_THAT(refusal(with("\"step\":1,\"time\":\"yesterday\"")),
      AllOf(StartsWith("m: line 1: time must be like 2"), EndsWith(": \"yesterday\"")));
}

TEST(MetricsReader, NamesTheFileThatItCannotOpen) {
  const lockstep::testing::TemporaryFolder folder;
  EXPECT_THROW(read_metrics(folder.path() / "metrics.jsonl"), DataError);
  std::ofstream(folder.path() / "metrics.jsonl") << train_line(0, 1, 1, 0.5, 1);
  EXPECT_EQ(read_metrics(folder.path() / "metrics.jsonl").lines.size(), 1U);
}

TEST(Merged, KeepsTheHighestRestartOfEachRankSplitAndStep) {
  const auto file =
      read(train_line(0, 1, 1, 0.1, 1) + train_line(0, 1, 2, 0.2, 2) + train_line(0, 1, 3, 0.3, 3) +
           train_line(2, 1, 2, 0.4, 4) + train_line(1, 1, 3, 0.5, 5) +
           testing::evaluation_line(0, 1, 2, "val", 0.6, 1) + train_line(2, 1, 2, 0.7, 6));
  std::vector<double> losses;
  for (const auto& line : merged(file.lines)) losses.push_back(line.record.scores.loss.value());
  EXPECT_THAT(losses, ElementsAre(0.1, 0.7, 0.6, 0.5));
}

TEST(ParseUtc, ReadsTheWritersForm) {
  EXPECT_DOUBLE_EQ(parse_utc("1970-01-02T01:01:01.500Z").value(), 90061.5);
  EXPECT_TRUE(parse_utc(utc_now()));
  EXPECT_FALSE(parse_utc("2026-02-30T00:00:00.000Z"));
  EXPECT_FALSE(parse_utc("2026-02-03 00:00:00.000Z"));
  EXPECT_FALSE(parse_utc(""));
}

RunHistory history_of(const std::string& text) {
  return run_history(parse_metrics(text, "m").lines);
}

TEST(RunHistory, IsEmptyWithoutRecords) {
  EXPECT_TRUE(history_of("").epochs.empty());
  EXPECT_FALSE(history_of("").samples_per_s);
}

TEST(RunHistory, WeighsIntervalsByTheirSteps) {
  const auto run = history_of(
      train_line(0, 1, 3, 1.0, 1) + train_line(0, 1, 4, 2.0, 2) +
      evaluation_line(0, 1, 4, "val", 0.5, 0.75) + evaluation_line(0, 1, 4, "val-ema", 0.4, 0.8) +
      train_line(0, 2, 8, 3.0, 3) + evaluation_line(0, 2, 8, "test", 0.3, 0.9));
  ASSERT_EQ(run.epochs.size(), 2U);
  const EpochHistory& epoch = run.epochs[0];
  EXPECT_DOUBLE_EQ(epoch.train_loss.value(), 1.25);
  EXPECT_EQ(epoch.step, 4);
  EXPECT_DOUBLE_EQ(epoch.val.loss.value(), 0.5);
  EXPECT_DOUBLE_EQ(epoch.val.top1.value(), 0.75);
  EXPECT_DOUBLE_EQ(epoch.ema.top1.value(), 0.8);
  EXPECT_DOUBLE_EQ(epoch.lr.value(), 0.1);
  EXPECT_DOUBLE_EQ(epoch.seconds.value(), 2);
  EXPECT_FALSE(run.epochs[1].val.loss);
  EXPECT_DOUBLE_EQ(run.test.top1.value(), 0.9);
  EXPECT_DOUBLE_EQ(run.seconds, 4);
  EXPECT_DOUBLE_EQ(run.samples_per_s.value(), 100);
  EXPECT_TRUE(run.restarts.empty());
}

TEST(RunHistory, MakesOneCurveOverRestarts) {
  const auto run = history_of(train_line(0, 1, 2, 1.0, 1) + train_line(0, 1, 4, 2.0, 2) +
                              train_line(0, 2, 6, 9.0, 3) + train_line(0, 2, 8, 9.0, 4) +
                              train_line(1, 2, 6, 3.0, 10) + train_line(1, 2, 8, 4.0, 11) +
                              train_line(3, 3, 10, 5.0, 20));
  ASSERT_EQ(run.epochs.size(), 3U);
  EXPECT_DOUBLE_EQ(run.epochs[1].train_loss.value(), 3.5);
  EXPECT_DOUBLE_EQ(run.seconds, 5) << "steps made twice count once";
  ASSERT_EQ(run.restarts.size(), 2U);
  EXPECT_EQ(run.restarts[0].restart, 1);
  EXPECT_EQ(run.restarts[0].epoch, 2);
  EXPECT_EQ(run.restarts[0].step, 6);
  EXPECT_EQ(run.restarts[0].made_again, 2);
  EXPECT_EQ(run.restarts[0].furthest_step, 8);
  EXPECT_DOUBLE_EQ(run.restarts[0].gap.value(), 6);
  EXPECT_EQ(run.restarts[1].restart, 3);
  EXPECT_EQ(run.restarts[1].made_again, 0);
  EXPECT_EQ(run.restarts[1].furthest_step, 8);
}

// Records at 90 and 120 cover what that of step 100 says.
TEST(RunHistory, DropsWhatALaterLifeLoggedAtOtherSteps) {
  const auto run = history_of(train_line(0, 1, 50, 1.0, 1) + train_line(0, 1, 100, 7.0, 2) +
                              train_line(1, 1, 90, 2.0, 3) + train_line(1, 1, 120, 3.0, 4));
  EXPECT_NEAR(run.epochs.at(0).train_loss.value(), (50 * 1.0 + 40 * 2.0 + 30 * 3.0) / 120, 1e-12);
}

TEST(RunHistory, DoesNotCountTheStepOfAnEvaluationAsMadeAgain) {
  const auto run =
      history_of(train_line(0, 1, 4, 1.0, 1) + evaluation_line(1, 1, 4, "val", 0.5, 0.75) +
                 train_line(1, 2, 8, 1.0, 5));
  EXPECT_EQ(run.restarts.at(0).made_again, 0);
}

TEST(RunHistory, TakesTheLowestRank) {
  std::string other = train_line(0, 1, 4, 9.0, 1);
  other.replace(other.find("\"rank\":0"), 8, "\"rank\":1");
  const auto run = history_of(other + train_line(0, 1, 4, 1.0, 1));
  EXPECT_DOUBLE_EQ(run.epochs.at(0).train_loss.value(), 1.0);
}

}  // namespace
}  // namespace lockstep
