#include "bench/studies/throughput.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/studies/bench_request.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::throughput {
namespace {

using lockstep::testing::expect_parts;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::expect_rows;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using testing::table_of;
using testing::text_of;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kGigabyte = 1'000'000'000;

Study throughput(bool full, int cores) { return make_study({.full = full, .cores = cores}); }

std::set<std::string> ids(const Study& study) {
  std::set<std::string> all;
  for (const StudyCell& cell : study.cells) all.insert(cell.id);
  return all;
}

TEST(ThroughputGrid, IsTheStudysInFullAndDdpBesides) {
  const Study whole = throughput(true, 16);
  check_study(whole);
  EXPECT_THAT(
      ids(whole), UnorderedElementsAre("serial-p1-b128-224px-32-s5000", "dp-p4-b128-224px-32-s5000",
                      "dp-p4-b512-224px-32-s5000", "dp-p4-b512-224px-bf16-mixed-s5000",
                      "dp-p4-b512-224px-16-mixed-s5", "ddp-p4-b128-224px-32-s5000",
                      "ddp-p4-b512-224px-32-s5000", "ddp-p4-b512-224px-bf16-mixed-s5000",
                      "ddp-p4-b512-224px-16-mixed-s5"));
  EXPECT_THAT(
      cell_of(grid({.full = true, .cores = 16}).at(1), {.full = true, .cores = 16}, 0).command,
      ElementsAre("train", "--model", "resnet50", "--num-classes", "1000", "--data",
          "mock:constant", "--image-size", "224", "--batch-size", "32", "--precision", "32",
          "--opt", "sgd", "--lr", "1e-6", "--momentum", "0.9", "--max-steps", "5000",
          "--log-interval", "50", "--val-interval", "never", "--snapshot-interval", "never",
          "--progress", "none", "--parallel", "dp", "--places", "4"));
}

TEST(ThroughputGrid, IsSmallWhenItIsQuick) {
  const Study quick = throughput(false, 2);
  check_study(quick);
  EXPECT_THAT(ids(quick),
      UnorderedElementsAre("serial-p1-b2-224px-32-s4", "dp-p2-b2-224px-32-s4",
          "dp-p2-b8-224px-32-s4", "dp-p2-b8-224px-bf16-mixed-s4", "dp-p2-b4-32px-32-s4",
          "dp-p2-b4-32px-16-mixed-s4", "ddp-p2-b2-224px-32-s4", "ddp-p2-b8-224px-32-s4"));
}

TEST(ThroughputGrid, TakesAsManyPlacesAsThereAreCoresTwoToFour) {
  const auto most = [](int cores) {
    int places = 0;
    for (const StudyCell& cell : throughput(false, cores).cells)
      places = std::max(places, cell.places);
    return places;
  };
  EXPECT_EQ(most(1), 2);
  EXPECT_EQ(most(2), 2);
  EXPECT_EQ(most(3), 3);
  EXPECT_EQ(most(4), 4);
  EXPECT_EQ(most(64), 4);
}

TEST(ThroughputGrid, GivesEveryPlaceTheSameCores) {
  for (const int cores : {1, 2, 3, 16}) {
    const int each = std::max(1, cores / 4);
    for (const StudyCell& cell : throughput(false, cores).cells) {
      EXPECT_EQ(cell.cores, std::min(cores, cell.places * each)) << cell.id;
      EXPECT_THAT(cell.environment, ElementsAre("OMP_NUM_THREADS=" + std::to_string(each)));
    }
  }
}

TEST(ThroughputGrid, DividesEveryBatchAmongThePlacesAndTimesThreeStepsAtLeast) {
  for (const bool full : {false, true}) {
    for (const int cores : {1, 3, 4, 64}) {
      for (const Point& point : grid({.full = full, .cores = cores})) {
        EXPECT_EQ(point.batch % point.places, 0);
        EXPECT_GE(point.steps - point.log_interval, 3);
      }
    }
  }
}

TEST(ThroughputGrid, SaysWhatMemoryIsMissing) {
  const StudyOptions options{.full = true, .cores = 2};
  const auto points = grid(options);
  const Point& large = points.at(2);
  ASSERT_EQ(large.batch, 512);
  EXPECT_THAT(cell_of(large, options, 16 * kGigabyte).not_measurable,
      HasSubstr("of memory, only 16 GB here; use a machine with more, or --quick"));
  EXPECT_EQ(cell_of(large, options, 256 * kGigabyte).not_measurable, "");
  EXPECT_EQ(cell_of(large, options, 0).not_measurable, "") << "not known";
  for (const Point& point : grid({.cores = 2})) {
    EXPECT_EQ(cell_of(point, {.cores = 2}, 8 * kGigabyte).not_measurable, "");
  }
}

TEST(ThroughputGrid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : throughput(full, 2).cells)
      EXPECT_LT(testing::train_options_of(each).val_interval, 0) << "evaluates";
  }
}

class StepValues : public testing::RunFolder {
 protected:
  // A line of steps that took so long each, on 8 images.
  void line(std::int64_t step, double step_ms, const std::string& split = "train") const {
    add({.step = step,
        .split = split,
        .scores = {.loss = 7},
        .samples_per_s = 8000 / step_ms,
        .step_ms = step_ms,
        .data_ms = step_ms / 10});
  }

  void summary(std::int64_t skipped) const {
    RunSummary summary;
    summary.skipped_steps = skipped;
    write(summary);
  }

  std::string refusal() const {
    return refusal_of([&] { values_of(run()); });
  }
};

TEST_F(StepValues, LeaveOutTheFirstLine) {
  line(1, 5000);
  line(2, 800);
  line(3, 1600);
  line(3, 100, "val");
  summary(1);
  const auto values = values_of(run());
  EXPECT_NEAR(values.at("seconds_a_sample"), 0.15, 1e-9);
  EXPECT_NEAR(values.at("samples_per_s"), 16 / 2.4, 1e-9);
  EXPECT_NEAR(values.at("first_step_seconds"), 5, 1e-9);
  EXPECT_EQ(values.at("timed_steps"), 2);
  EXPECT_NEAR(values.at("data_share"), 0.1, 1e-9);
  EXPECT_EQ(values.at("skipped_steps"), 1);
}

TEST_F(StepValues, WeighLinesByTheirSteps) {
  line(50, 1000);
  line(100, 800);
  line(110, 1600);
  summary(0);
  const auto values = values_of(run());
  EXPECT_NEAR(values.at("seconds_a_sample"), (50 * 0.8 + 10 * 1.6) / (60 * 8), 1e-9);
  EXPECT_EQ(values.at("timed_steps"), 60);
  EXPECT_NEAR(values.at("first_step_seconds"), 1, 1e-9);
}

TEST_F(StepValues, SayWhatIsMissing) {
  line(1, 800);
  summary(0);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has 1 lines of training; it takes two"));
  line(1, 800);
  EXPECT_THAT(refusal(), HasSubstr("metrics.jsonl: has no time of step 1"));
}

TEST_F(StepValues, NeedASummary) {
  line(1, 800);
  line(2, 800);
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
}

Study quick(int cores = 2) { return throughput(false, cores); }

TEST(Throughput, SetsHereBesidePredictedAndPublished) {
  const auto section = report_of(quick(), made_rounds(quick(), usual_seconds()));
  const auto& cost = table_of(section, "throughput-samples-cost");
  ASSERT_EQ(cost.rows.size(), 8U);
  expect_rows(cost, {"serial|1|2|2|32|224|408|404 to 412|-|3.33|the others are predicted from it|",
                        "dp|2|2|1|32|224|255|252 to 258|204|3.34|-|",
                        "dp|2|8|4|32|224|224|222 to 227|204|1.23|-|"});
  EXPECT_THAT(row_text(cost, "dp|2|8|4|bf16-mixed|224|"),
      HasSubstr("|449|444 to 453|-|0.990|no prediction|"));
  EXPECT_THAT(row_text(cost, "ddp|2|8|"), HasSubstr("|204|-|the study has no ddp|"));
  EXPECT_THAT(row_text(cost, "dp|2|4|2|16-mixed|32|"), HasSubstr("overflow left out 2 of 4 steps"));
}

TEST(Throughput, SetsTheStudysRatios) {
  const auto section = report_of(quick(), made_rounds(quick(), usual_seconds()));
  const auto& ratios = table_of(section, "throughput-ratios");
  ASSERT_EQ(ratios.rows.size(), 6U);
  expect_rows(ratios,
      {"one place / dp, same batch|1.60|1.60 to 1.60|2.00|0.997|faster in every round|-|",
          "one place / dp, 4 times the batch|1.82|1.82 to 1.82|2.00|2.70|faster in every round|-|",
          "dp in float32 / bf16-mixed|0.50|0.50 to 0.50|-|1.24|slower in every round|no "
          "prediction|"});
  EXPECT_THAT(row_text(ratios, "dp in float32 / 16-mixed, 32 px|"), HasSubstr("|0.02|"));
  EXPECT_THAT(
      row_text(ratios, "one place / ddp, same batch|"), HasSubstr("|-|faster in every round|"));
  const auto& ways = table_of(section, "throughput-dp-or-ddp");
  ASSERT_EQ(ways.rows.size(), 2U);
  EXPECT_EQ(row_text(ways, "2|8|"), "2|8|4|32|224|224|204|1.10|1.10 to 1.10|ddp|-|");
}

TEST(Throughput, ConcludesWhichWayPaidByHowMuchAndHowSure) {
  const std::string text = text_of(report_of(quick(), made_rounds(quick(), usual_seconds())));
  expect_parts(
      text, {"dp in 16-mixed on images of 32 x 32 0.02 times", "Half precision does not pay here.",
                "take ddp.", "The least a sample cost: 204 ms, by ddp with a batch of 8.",
                "over 3 rounds", "a probability of 75 %",
                "batches of 2 and 8 instead of 128 and 512, 4 steps instead of 5000", "0.997"});
  EXPECT_THAT(
      text, ContainsRegex("dp on 2 places.*same batch of 2 it is 1.60 times as fast .1.60 to 1.60, "
                          "faster in every round.*4 times that, 8, it is 1.82 times as fast"));
}

TEST(Throughput, ConcludesTheOtherWayFromOtherNumbers) {
  SecondsByCell seconds = usual_seconds();
  seconds["serial-p1-b2-224px-32-s4"] = 0.1;
  seconds["ddp-p2-b2-224px-32-s4"] = 0.5;
  seconds["ddp-p2-b8-224px-32-s4"] = 0.5;
  seconds["dp-p2-b8-224px-bf16-mixed-s4"] = 0.08;
  seconds["dp-p2-b4-32px-16-mixed-s4"] = 0.005;
  const std::string text = text_of(report_of(quick(), made_rounds(quick(), seconds)));
  expect_parts(text,
      {"0.40 times as fast (0.40 to 0.40, slower in every round)", "Half precision pays here.",
          "take dp.", "81.6 ms, by dp with a batch of 8 in bf16-mixed"});
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
  expect_parts(text_of(report_of(quick(), samples)), {"over 3 rounds", "a probability of 75 %:"});
}

TEST(Throughput, IsNotSureOfOneRound) {
  auto samples = made_rounds(quick(), usual_seconds());
  std::erase_if(samples, [](const Sample& sample) { return sample.round > 1; });
  const auto section = report_of(quick(), samples);
  expect_parts(text_of(section), {"nothing is sure", "neither is clearly faster"});
  EXPECT_THAT(text_of(section), Not(HasSubstr("in every round")));
  EXPECT_THAT(text_of(section), Not(HasSubstr("does not pay")));
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
  expect_parts(text_of(section), {"dp: no cell has a number", "1 of 8 cells have no number"});
}

TEST(Throughput, ClaimsNothingFromTheOversubscribed) {
  const Study on_one = quick(1);
  const auto section = report_of(on_one, made_rounds(on_one, usual_seconds()));
  testing::expect_oversubscribed_marks(section);
  expect_parts(text_of(section),
      {"2 places are more than there are cores", "dp: no cell has a number, beside one place's"});
  EXPECT_THAT(text_of(section), Not(HasSubstr("surely")));
  EXPECT_THAT(text_of(section), Not(HasSubstr("take d")));
  // Nobody can be faster on the same core.
  EXPECT_THAT(row_text(table_of(section, "throughput-ratios"), "one place / dp, same batch|"),
      HasSubstr("|1.00|"));
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
