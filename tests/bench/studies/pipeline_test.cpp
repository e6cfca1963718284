#include "bench/studies/pipeline.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <stdexcept>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/studies/bench_request.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::pipeline {
namespace {

using lockstep::testing::expect_parts;
using testing::cell_named;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::expect_rows;
using testing::expect_values;
using testing::figure_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using testing::table_of;
using testing::text_of;

Study pipeline(bool full, int cores, int rounds = 0) {
  return make_study({.full = full, .cores = cores, .rounds = rounds});
}

TEST(PipelineGrid, IsTheStudysInFullWithTheSchedulesThatItLacks) {
  const Study whole = pipeline(true, 4);
  check_study(whole);
  std::set<std::string> ids;
  for (const StudyCell& each : whole.cells) ids.insert(each.id);
  for (const char* id : {"single-b120", "single-both-b120", "mp-b120"}) {
    EXPECT_THAT(ids, Contains(id));
  }
  for (const std::string way : {"gpipe", "1f1b", "interleaved", "zero-bubble", "single-micro"}) {
    for (const char* split : {"1", "3", "5", "8", "10", "12", "20", "40", "60"}) {
      EXPECT_THAT(ids, Contains(way + "-b120-s" + split));
    }
  }
  EXPECT_EQ(ids.size(), 3U + 5U * 9U);
  // Five rounds of two repeats are the study's ten, each of three batches, after one to warm up.
  EXPECT_EQ(whole.rounds, 5);
  EXPECT_THAT(cell_named(whole, "gpipe-b120-s20").command,
      ElementsAre("train", "--model", "resnet50", "--data", "mock:fresh", "--num-classes", "1000",
          "--image-size", "128", "--batch-size", "120", "--opt", "sgd", "--momentum", "0", "--lr",
          "0.001", "--loss", "mse", "--max-steps", "7", "--log-interval", "1", "--val-interval",
          "never", "--snapshot-interval", "never", "--progress", "none", "--places", "2",
          "--balance", "count", "--parallel", "pp", "--chunks", "6", "--schedule", "gpipe"));
}

TEST(PipelineGrid, TakesAPartOfTheBatchWhenItIsQuickAndCallsThatOtherCells) {
  const Study quick = pipeline(false, 2), whole = pipeline(true, 2);
  check_study(quick);
  EXPECT_EQ(quick.cells.size(), 12U);
  for (const StudyCell& each : quick.cells) {
    for (const StudyCell& other : whole.cells) EXPECT_NE(each.id, other.id);
  }
  for (const char* way : {"gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    EXPECT_NO_THROW(cell_named(quick, std::string(way) + "-b8-s2"));
  }
  EXPECT_EQ(pipeline(false, 2, 7).rounds, 7);
}

TEST(PipelineGrid, GivesASinglePlaceTheCoresOfOneOrOfBoth) {
  const Study on_two = pipeline(false, 2), on_sixteen = pipeline(false, 16);
  EXPECT_EQ(cell_named(on_two, "single-b8").cores, 1);
  EXPECT_EQ(cell_named(on_two, "single-both-b8").cores, 2);
  EXPECT_EQ(cell_named(on_two, "mp-b8").cores, 2);
  EXPECT_EQ(cell_named(on_two, "mp-b8").places, 2);
  EXPECT_EQ(cell_named(on_two, "single-both-b8").places, 1);
  EXPECT_EQ(cell_named(on_sixteen, "single-b8").cores, 8);
  EXPECT_EQ(cell_named(on_sixteen, "single-micro-b8-s2").cores, 8);
  EXPECT_THAT(
      cell_named(on_sixteen, "single-both-b8").environment, ElementsAre("OMP_NUM_THREADS=16"));
  EXPECT_THAT(cell_named(on_sixteen, "1f1b-b8-s2").environment, ElementsAre("OMP_NUM_THREADS=8"));
  EXPECT_EQ(cell_named(pipeline(false, 3), "mp-b8").cores, 2) << "both places have one";
}

TEST(PipelineGrid, SaysThatOneCoreIsNotTwo) {
  const Study on_one = pipeline(false, 1);
  check_study(on_one);
  EXPECT_THAT(cell_named(on_one, "single-both-b8").not_measurable, HasSubstr("needs 2 cores"));
  EXPECT_EQ(cell_named(on_one, "mp-b8").not_measurable, "") << "oversubscribed";
}

TEST(PipelineGrid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : pipeline(full, 2).cells) {
      const TrainOptions train = testing::train_options_of(each);
      EXPECT_EQ(testing::after(each.command, "--nproc-per-node"), "") << each.id;
      EXPECT_EQ(train.batch_size * train.grad_accum_steps, std::stoi(each.settings.at(1).value))
          << each.id;
    }
  }
}

class PipelineValues : public testing::RunFolder {
 protected:
  void add_step(std::int64_t step, double milliseconds) const {
    add({.epoch = 1,
        .step = step,
        .split = "train",
        .scores = {.loss = 7},
        .step_ms = milliseconds});
  }

  // A line for each step.
  void write(const std::vector<double>& milliseconds, std::optional<std::int64_t> memory) const {
    std::filesystem::remove(run() / "metrics.jsonl");
    std::int64_t step = 0;
    for (const double each : milliseconds) add_step(++step, each);
    RunSummary summary;
    summary.peak_memory_bytes = memory;
    RunFolder::write(summary);
  }

  SampleValues values() const { return values_of(run(), 3); }
  std::string refusal() const {
    return refusal_of([&] { values(); });
  }
};

TEST_F(PipelineValues, AreThoseOfRunsAfterTheFirstStep) {
  // One to warm up, runs of 3 and of 5 seconds, one that is left over.
  write({9000, 1000, 500, 1500, 1000, 2000, 2000, 4000}, 5000000000);
  const auto found = values();
  expect_values(
      found, {{"run_seconds", 4}, {"run_variance", 1}, {"repeats", 2}, {"peak_memory_bytes", 5e9}});
}

TEST_F(PipelineValues, HaveNoMemoryWhereTheRunDidNotTell) {
  write({9000, 1000, 1000, 1000}, std::nullopt);
  EXPECT_TRUE(std::isnan(values().at("peak_memory_bytes")));
}

TEST_F(PipelineValues, SayWhatIsMissing) {
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl"));
  write({1000, 1000, 1000}, 1);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has fewer than 4 steps"));
  write({1000, 1000, 1000, 1000}, 1);
  EXPECT_NO_THROW(values());
  std::filesystem::remove(run() / "summary.json");
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
}

// With a longer interval a line is the mean of several steps, which are no longer told apart.
TEST_F(PipelineValues, NeedALineForEachStep) {
  write({1000, 1000, 1000, 1000}, 1);
  add_step(6, 1000);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has no time of step 5"));
}

using Seconds = std::map<std::string, double>;

const Seconds kPaying{{"single", 6}, {"single-both", 3.5}, {"single-micro", 7.2}, {"gpipe", 3},
    {"1f1b", 2.9}, {"interleaved", 3}, {"zero-bubble", 2.8}};

page::Section report_of(const std::vector<Sample>& samples) {
  return report_of(pipeline(false, 2), samples);
}

page::Section report_of(const Seconds& seconds, int rounds = 3) {
  return report_of(made_runs(pipeline(false, 2), rounds, seconds));
}

void fail(std::vector<Sample>& samples, const std::string& way) {
  testing::fail_where(samples,
      "killed by SIGKILL, probably for want of memory (the host killed a process)",
      [&](const Sample& sample) { return sample.settings.at("way") == way; });
}

TEST(PipelineStudy, SetsRunsBesideWhatTheirBubblePredicts) {
  const auto section = report_of(kPaying);
  expect_rows(table_of(section, "pipeline-times"),
      {"single place|8|1|1|-|6.12 ± 0.614|6|6.12|6.06 to 6.18|-|predicts the others|",
          "gpipe|2|4|2|-|4.59 ± 0.460|6|4.59|4.54 to 4.63|3.82|-|"});
  expect_rows(table_of(section, "pipeline-speed-up"),
      {"gpipe|2|4|1.33|1.33 to 1.33|20 %|1.60|83 %|100 %|0.78|-|",
          "zero-bubble|2|4|1.43|1.43 to 1.43|7.7 %|1.85|77 %|93 %|0.83|-|",
          "model parallel|8|1|0.95|0.95 to 0.95|50 %|1.00|95 %|-|0.56|-|"});
  expect_rows(table_of(section, "pipeline-memory"),
      {"gpipe|2|4|1000|1000 to 1000|1.11|8 / 8|-|", "1f1b|2|4|700|700 to 700|0.78|4 / 2|-|"});
}

TEST(PipelineStudy, ConcludesWhatPaidByHowMuchAndHowSure) {
  const std::string text = text_of(report_of(kPaying));
  expect_parts(
      text, {"over 3 rounds", "A place is 1 core here", "The batch is 8, the study's 120"});
  EXPECT_THAT(
      text, ContainsRegex("Model parallel.* takes 1.05 .1.05 to 1.05. times as long as a single "
                          "place: longer in every round"));
  EXPECT_THAT(
      text, ContainsRegex("best of 3 split sizes is 2, 4 micro-batches: 1.33 .1.33 to 1.33. times "
                          "as fast as a single place, faster in every round.* 83 % of the 1.60"));
  EXPECT_THAT(text,
      ContainsRegex("Of 4 schedules at split size 2 zero-bubble is the fastest, 1.07 .* times "
                    "as fast as gpipe: faster in every round.* 0.90 .* the memory of gpipe"));
  EXPECT_THAT(
      text, ContainsRegex("takes 1.20 .* as long as one place with the cores of both, longer in "
                          "every round: cut a net for memory, not for time"));
  EXPECT_THAT(
      text, ContainsRegex("1.60 .1.60 to 1.60. times as fast as a single place that has the same "
                          "micro-batches of 2: 100 %"));
}

TEST(PipelineStudy, ConcludesTheOtherWayFromOtherNumbers) {
  Seconds seconds = kPaying;
  seconds["gpipe"] = 5;
  seconds["mp"] = 5;
  seconds["zero-bubble"] = seconds["1f1b"] = seconds["interleaved"] = 5.5;
  seconds["single-both"] = 9;
  const std::string text = text_of(report_of(seconds));
  expect_parts(
      text, {"as long as a single place: shorter in every round.",
                "0.80 (0.80 to 0.80) times as fast as a single place, slower in every round",
                "Of 4 schedules at split size 2 gpipe is the fastest.",
                "shorter in every round: the cut pays."});
}

TEST(PipelineStudy, FindsNoDifferenceWhereIntervalsCross) {
  auto samples = made_runs(pipeline(false, 2), 3, kPaying);
  for (Sample& sample : samples) {
    if (sample.round == 2 && sample.cell == "mp-b8") sample.values["run_seconds"] = 5;
  }
  EXPECT_THAT(text_of(report_of(samples)),
      HasSubstr("as long as a single place: no significant difference."));
  const auto once = report_of(kPaying, 1);
  EXPECT_THAT(text_of(once), HasSubstr("only one round, not conclusive"));
  EXPECT_THAT(text_of(once), Not(HasSubstr("in every round")));
}

TEST(PipelineStudy, TakesNothingFromPlacesWithoutCores) {
  auto samples = made_runs(pipeline(false, 2), 3, kPaying);
  for (Sample& sample : samples) sample.oversubscribed = sample.places > 1;
  const auto section = report_of(samples);
  testing::expect_oversubscribed_marks(section);
  for (const plot::Figure& each : section.figures) {
    EXPECT_THAT(each.note, HasSubstr("Oversubscribed")) << each.id;
  }
  EXPECT_THAT(text_of(section), HasSubstr("Two places are more than there are cores"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("times as")));
}

TEST(PipelineStudy, SaysWhyACellHasNoNumber) {
  auto samples = made_runs(pipeline(false, 2), 3, kPaying);
  fail(samples, "gpipe");
  auto section = report_of(samples);
  EXPECT_THAT(row_text(table_of(section, "pipeline-times"), "gpipe|2|"),
      HasSubstr("|0|-|-|3.82|killed by"));
  expect_parts(text_of(section),
      {"The study's pipeline cannot be compared", "Of 3 schedules at split size 2 zero-bubble",
          "3 of 12 cells have no number"});
  fail(samples, "single");
  section = report_of(samples);
  EXPECT_THAT(row_text(table_of(section, "pipeline-times"), "1f1b|2|"),
      HasSubstr("no single place to predict from"));
  EXPECT_THAT(row_text(table_of(section, "pipeline-speed-up"), "1f1b|2|"),
      HasSubstr("single place: killed by"));
  EXPECT_THAT(text_of(section), HasSubstr("Model parallel cannot be compared"));
}

TEST(PipelineStudy, ReportsOneCore) {
  const Study study = pipeline(false, 1);
  std::vector<Sample> samples = made_runs(study, 2, kPaying);
  for (Sample& sample : samples) {
    sample.oversubscribed = sample.places > 1;
    if (sample.settings.at("way") != "single-both") continue;
    sample.values.clear();
    sample.not_measurable = "needs 2 cores and may use 1";
  }
  const auto section = report_of(study, samples);
  EXPECT_THAT(row_text(table_of(section, "pipeline-times"), "single, cores of both|"),
      HasSubstr("needs 2 cores"));
}

TEST(PipelineStudy, DrawsTheStudysFiguresAndTheBounds) {
  const auto section = report_of(kPaying);
  const auto& first = figure_of(section, "pipeline-mp-vs-rn");
  ASSERT_EQ(first.series.at(0).points.size(), 3U);
  EXPECT_NEAR(first.series[0].points[1].y, 6.12, 1e-9);
  EXPECT_NEAR(first.series[0].points[1].high.value(), 6.12 + 0.61398, 1e-4);
  EXPECT_EQ(figure_of(section, "pipeline-mp-vs-rn-vs-pp").x.categories.at(2),
      "Pipelining Model Parallel (split 2)");
  const auto& splits = figure_of(section, "pipeline-split-size-tradeoff");
  ASSERT_EQ(splits.series.at(0).points.size(), 3U);
  EXPECT_EQ(splits.series[1].name, "gpipe, bubble bound");
  EXPECT_NEAR(splits.series[1].points[1].y, 3.825, 1e-9);
  EXPECT_EQ(splits.series[2].name, "single, micro-batches");
  EXPECT_NEAR(splits.series[2].points.at(1).y, 7.344, 1e-9);
  const auto& schedules = figure_of(section, "pipeline-schedules");
  ASSERT_EQ(schedules.series.at(1).points.size(), 5U);
  EXPECT_NEAR(schedules.series[1].points[4].y, 2 * (1 - 1.0 / 13), 1e-9) << "zero-bubble's";
  EXPECT_EQ(section.figures.size(), 5U);
}

TEST(PipelineStudy, DrawsEverySchedulesSplitSizesInFull) {
  const Study whole = pipeline(true, 2);
  const auto section = report_of(whole, made_runs(whole, 5, kPaying));
  const auto& figure_of_all = figure_of(section, "pipeline-schedules-over-splits");
  ASSERT_EQ(figure_of_all.series.size(), 7U);
  for (const plot::Series& series : figure_of_all.series) EXPECT_EQ(series.points.size(), 9U);
  EXPECT_THAT(row_text(table_of(section, "pipeline-times"), "gpipe|20|"), HasSubstr("|10|"));
  EXPECT_THAT(text_of(section), Not(HasSubstr("The batch is")));
}

TEST(PipelineBound, IsTheClosedFormAndTheSimulatedOneElsewhere) {
  const auto bound = [](const std::string& way, int split) {
    return bound_of({.way = way, .batch = 120, .split = split});
  };
  EXPECT_NEAR(bound("gpipe", 20).idle, 1.0 / 7, 1e-12);
  EXPECT_NEAR(bound("1f1b", 20).speed_up, 12.0 / 7, 1e-12);
  EXPECT_NEAR(bound("interleaved", 20).idle, 1.0 / 13, 1e-12);
  EXPECT_NEAR(bound("zero-bubble", 20).idle, 1.0 / 19, 1e-12);
  EXPECT_GT(bound("interleaved", 40).idle, 1.0 / 7) << "3 micro-batches are no multiple of 2";
  EXPECT_NEAR(bound("mp", 120).speed_up, 1, 1e-12);
  EXPECT_EQ(bound("gpipe", 20).live_images, (std::vector<int>{120, 120}));
  EXPECT_EQ(bound("1f1b", 20).live_images, (std::vector<int>{40, 20}));
}

}  // namespace
}  // namespace lockstep::bench::pipeline
