#include "bench/studies/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

#include "bench/statistics/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::data_parallel {
namespace {

using lockstep::testing::expect_parts;
using testing::after;
using testing::cell_named;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::expect_rows_at;
using testing::expect_values;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::report_of;
using testing::row_text;
using testing::table_of;
using testing::text_of;
using testing::train_options_of;

Study study(bool full, int cores, int rounds = 0) {
  return make_study({.full = full, .cores = cores, .rounds = rounds});
}

TEST(Grid, IsTheStudysInFull) {
  const Study whole = study(true, 4);
  check_study(whole);
  // Two models, three repeats, three batch sizes; one place once, two and four in both ways.
  EXPECT_EQ(whole.cells.size(), 2U * 3U * 3U * 5U);
  std::set<std::string> ids;
  for (const StudyCell& each : whole.cells) ids.insert(each.id);
  EXPECT_EQ(ids.size(), whole.cells.size());
  for (const StudyCell& each : whole.cells) {
    EXPECT_THAT(each.command, ::testing::Not(Contains("--limit-train-batches"))) << each.id;
    EXPECT_EQ(each.rounds, 0);
  }
  EXPECT_THAT(cell_named(whole, "mnist-large-r8-b512-p4-ddp").command,
      ElementsAre("train", "--model", "mnist-large", "--data", "fashion-mnist", "--repeat", "8",
          "--batch-size", "512", "--opt", "adam", "--lr", "0.001", "--epochs", "2",
          "--val-interval", "0", "--snapshot-interval", "never", "--progress", "none", "--parallel",
          "ddp", "--nproc-per-node", "4", "--max-restarts", "0"));
}

TEST(Grid, CutsEpochsWhenItIsQuickAndCallsThatOtherCells) {
  const Study quick = study(false, 2);
  check_study(quick);
  const Study whole = study(true, 2);
  for (const StudyCell& each : quick.cells) {
    EXPECT_THAT(each.command, Contains("--limit-train-batches")) << each.id;
    for (const StudyCell& other : whole.cells) EXPECT_NE(each.id, other.id);
  }
  // The test set takes the large net longer than what is timed.
  EXPECT_EQ(
      after(cell_named(quick, "mnist-large-r1-b128-p1-s4").command, "--val-interval"), "never");
  EXPECT_EQ(after(cell_named(quick, "mnist-small-r1-b128-p1-s120").command, "--val-interval"), "0");
  // The same images at every number of places.
  EXPECT_EQ(cell_named(quick, "mnist-small-r1-b128-p1-s120").command.back(), "120");
  EXPECT_EQ(cell_named(quick, "mnist-small-r1-b128-p4-dp-s30").command.back(), "30");
  EXPECT_EQ(cell_named(quick, "mnist-small-r1-b128-p4-dp-s30").rounds, 1);
  EXPECT_EQ(cell_named(study(false, 2, 5), "mnist-small-r1-b128-p4-dp-s30").rounds, 0);
}

TEST(Grid, GivesEachPlaceTheSameCores) {
  EXPECT_EQ(cores_a_place(1), 1);
  EXPECT_EQ(cores_a_place(2), 1);
  EXPECT_EQ(cores_a_place(7), 1);
  EXPECT_EQ(cores_a_place(16), 4);
  const Study on_two = study(true, 2), on_sixteen = study(true, 16);
  EXPECT_EQ(cell_named(on_two, "mnist-small-r1-b128-p1").cores, 1);
  EXPECT_EQ(cell_named(on_two, "mnist-small-r1-b128-p2-dp").cores, 2);
  EXPECT_EQ(cell_named(on_two, "mnist-small-r1-b128-p4-dp").cores, 2);
  EXPECT_EQ(cell_named(on_sixteen, "mnist-small-r1-b128-p1").cores, 4);
  EXPECT_EQ(cell_named(on_sixteen, "mnist-small-r1-b128-p4-ddp").cores, 16);
  EXPECT_THAT(cell_named(on_sixteen, "mnist-small-r1-b128-p4-ddp").environment,
      ElementsAre("OMP_NUM_THREADS=4"));
}

TEST(Grid, EveryCommandIsOneThatTrainTakes) {
  for (const bool full : {false, true}) {
    for (const StudyCell& each : study(full, 2).cells) train_options_of(each);
  }
}

class EpochValues : public testing::RunFolder {
 protected:
  void write(const std::vector<EpochSummary>& epochs) const {
    RunSummary summary;
    summary.epochs = epochs;
    summary.test.top1 = 0.875;
    RunFolder::write(summary);
  }

  SampleValues values(std::int64_t images) const { return values_of(run(), images); }
  std::string refusal() const {
    return refusal_of([&] { values(1000); });
  }
};

TEST_F(EpochValues, AreThoseOfWholeEpochs) {
  write({{.epoch = 1, .train_seconds = 3, .train_loss = 0.5, .samples = 1000},
      {.epoch = 2, .train_seconds = 2, .train_loss = 0.25, .samples = 1000}});
  const auto found = values(1000);
  expect_values(found, {{"first_epoch_seconds", 3}, {"second_epoch_seconds", 2}, {"epoch_share", 1},
                           {"samples_per_s", 500}, {"train_loss", 0.25}, {"test_accuracy", 0.875}});
  EXPECT_DOUBLE_EQ(values(998).at("epoch_share"), 1) << "ranks repeat some images";
}

TEST_F(EpochValues, ExtrapolateThePartThatWasMeasured) {
  write({{.epoch = 1, .train_seconds = 3, .samples = 250},
      {.epoch = 2, .train_seconds = 2, .samples = 250}});
  const auto found = values(1000);
  expect_values(found, {{"epoch_share", 0.25}, {"second_epoch_seconds", 8}});
  // What starting took longer is paid once, however long the epoch is.
  EXPECT_DOUBLE_EQ(found.at("first_epoch_seconds"), 9);
}

TEST_F(EpochValues, SayWhatIsMissing) {
  EXPECT_THAT(refusal(), HasSubstr("summary.json: the run left no summary"));
  write({{.epoch = 1, .train_seconds = 3, .samples = 1000}});
  EXPECT_THAT(refusal(), HasSubstr("summary.json: has no time of epoch 2"));
  std::ofstream(run() / "summary.json") << "{";
  EXPECT_THAT(refusal(), HasSubstr("summary.json"));
}

TEST(TrainingImages, RefusesWhatItCannotCount) {
  EXPECT_THROW(training_images("cifar10:/nowhere"), InvalidArgument);
  EXPECT_THROW(training_images("mnist"), InvalidArgument);
  EXPECT_THROW(training_images("mnist:"), InvalidArgument);
  EXPECT_THROW(training_images("mnist:/nowhere"), DataError);
}

// The part of the whole grid with the small net, the set once and batch 128.
Study small_study(int cores) {
  Study study = make_study({.full = true, .cores = cores});
  std::erase_if(study.cells,
      [](const StudyCell& cell) { return !cell.id.starts_with("mnist-small-r1-b128-"); });
  return study;
}

// Three rounds; the times of one place, dp and ddp on two.
std::vector<Sample> three_rounds(double one, double dp, double ddp) {
  std::vector<Sample> samples;
  for (int round = 1; round <= 3; ++round) {
    const double noise = 1 + 0.01 * round;
    samples.push_back(made_epochs("mnist-small", 128, 1, "serial", round, one * noise));
    samples.push_back(made_epochs("mnist-small", 128, 2, "dp", round, dp * noise));
    samples.push_back(made_epochs("mnist-small", 128, 2, "ddp", round, ddp * noise));
  }
  return samples;
}

void add_four_places(std::vector<Sample>& samples) {
  for (const char* way : {"dp", "ddp"}) {
    samples.push_back(made_epochs("mnist-small", 128, 4, way, 1, 5));
    samples.back().oversubscribed = true;
  }
}

TEST(DataParallelStudy, SetsHereBesidePublished) {
  auto samples = three_rounds(4, 2.5, 2);
  add_four_places(samples);
  const auto section = report_of(small_study(2), samples);
  const auto& epochs = table_of(section, "data-parallel-epochs");
  ASSERT_EQ(epochs.rows.size(), 5U);
  expect_rows_at(epochs, {{0, "mnist-small|1|128|1|serial|5.08|4.08|4.04 to 4.12|9.39|9.45|-|"},
                             {1, "mnist-small|1|128|2|dp|3.55|2.55|2.52 to 2.58|10.9|8.29|-|"},
                             {2, "mnist-small|1|128|2|ddp|3.04|2.04|2.02 to 2.06|-|-|-|"},
                             {4, "mnist-small|1|128|4|ddp|6.00|5.00|-|-|-|oversubscribed|"}});
  const auto& faster = table_of(section, "data-parallel-speed-up");
  EXPECT_EQ(row_text(faster, 0), "mnist-small|1|128|2|dp|1.60|1.60 to 1.60|80 %|1.14|-|");
  const auto& choice = table_of(section, "data-parallel-dp-or-ddp");
  expect_rows_at(
      choice, {{0, "mnist-small|1|128|2|2.55|2.04|1.25|1.25 to 1.25|ddp|-|"},
                  {1, "mnist-small|1|128|4|5.00|5.00|1.00|-|one round|oversubscribed|"}});
  EXPECT_EQ(table_of(section, "data-parallel-samples").rows.size(), 11U);
}

TEST(DataParallelStudy, EveryTableMarksTheOversubscribed) {
  auto samples = three_rounds(4, 2.5, 2);
  add_four_places(samples);
  testing::expect_oversubscribed_marks(report_of(small_study(2), samples));
}

TEST(DataParallelStudy, ConcludesWhichWayPaidByHowMuchAndHowSure) {
  auto samples = three_rounds(4, 2.5, 2);
  add_four_places(samples);
  const std::string text = text_of(report_of(small_study(2), samples));
  expect_parts(
      text, {"ddp is 2.00 times as fast as one place (faster in every round in 1 of 1)",
                "dp is 1.60 times as fast as one place", "dp took 1.25 times as long as one of ddp",
                ": take ddp.", "over 3 rounds", "a probability of 75 %",
                "4 places are more than there are cores", "1.14 (mnist-small, 2 GPUs, batch 128)"});
}

TEST(DataParallelStudy, ConcludesTheOtherWayFromOtherNumbers) {
  const std::string slow = text_of(report_of(small_study(2), three_rounds(2, 2.5, 4)));
  expect_parts(slow,
      {"ddp is 0.50 times as fast as one place (slower in every round in 1 of 1)", ": take dp."});
  auto samples = three_rounds(4, 2, 2);
  for (Sample& sample : samples) {
    const bool odd = sample.settings.at("way") == "dp" && sample.round == 2;
    if (odd) sample.values["second_epoch_seconds"] = 1.9;
  }
  const std::string open = text_of(report_of(small_study(2), samples));
  EXPECT_THAT(open, HasSubstr("; neither is clearly faster"));
}

TEST(DataParallelStudy, IsNotSureOfOneRound) {
  std::vector<Sample> samples{made_epochs("mnist-small", 128, 1, "serial", 1, 4),
      made_epochs("mnist-small", 128, 2, "ddp", 1, 2)};
  const std::string text = text_of(report_of(small_study(2), samples));
  expect_parts(text, {"ddp is 2.00 times as fast as one place; ", "nothing is sure"});
  EXPECT_THAT(text, Not(HasSubstr("take")));
}

TEST(DataParallelStudy, SaysWhyACellHasNoNumber) {
  auto samples = three_rounds(4, 2.5, 2);
  testing::fail_where(samples, "killed by SIGKILL",
      [](const Sample& sample) { return sample.settings.at("way") == "ddp"; });
  const auto section = report_of(small_study(2), samples);
  EXPECT_THAT(row_text(table_of(section, "data-parallel-epochs"), 2), HasSubstr("SIGKILL"));
  EXPECT_THAT(row_text(table_of(section, "data-parallel-dp-or-ddp"), 0), HasSubstr("SIGKILL"));
  expect_parts(text_of(section), {"3 of 5 cells have no number", "ddp has no number"});
}

TEST(DataParallelStudy, SaysWhatIsExtrapolated) {
  auto samples = three_rounds(4, 2.5, 2);
  for (Sample& sample : samples) sample.values["epoch_share"] = 0.256;
  const auto section = report_of(small_study(2), samples);
  EXPECT_THAT(
      row_text(table_of(section, "data-parallel-epochs"), 0), HasSubstr("extrapolated from 26 %"));
  EXPECT_THAT(text_of(section), HasSubstr("extrapolated: mnist-small from 26 % of an epoch"));
  for (const plot::Figure& figure : section.figures) {
    EXPECT_THAT(figure.note, HasSubstr("Extrapolated from 26 %")) << figure.id;
  }
}

TEST(DataParallelStudy, DrawsTheEstimatesOfTheTables) {
  const auto section = report_of(small_study(2), three_rounds(4, 2.5, 2));
  ASSERT_EQ(section.figures.size(), 4U);
  const auto& second = section.figures.at(1);
  EXPECT_EQ(second.id, "data-parallel-second-epoch-mnist-small-r1");
  ASSERT_EQ(second.series.size(), 3U);
  EXPECT_EQ(second.series[0].name, "dp, batch 128");
  ASSERT_EQ(second.series[0].points.size(), 2U);
  EXPECT_NEAR(second.series[0].points[0].y, 4.08, 1e-9);
  EXPECT_NEAR(second.series[0].points[1].y, 2.55, 1e-9);
  EXPECT_EQ(second.series[2].name, "published, batch 128");
  EXPECT_NEAR(second.series[2].points[1].y, 8.288, 1e-9);
  EXPECT_EQ(section.figures.at(3).series[1].points.size(), 1U);
}

TEST(EstimateText, HasAboutThreeDigits) {
  EXPECT_EQ(seconds_text(0.9434), "0.943");
  EXPECT_EQ(seconds_text(12.44), "12.4");
  EXPECT_EQ(seconds_text(555.1), "555");
  EXPECT_EQ(seconds_text(0), "0.000");
  EXPECT_EQ(percent_text(0.017), "1.7 %");
  EXPECT_EQ(percent_text(0.26), "26 %");
  EXPECT_EQ(interval_text({1.5, 1.5, 1.5, 0, 1}), "-");
  EXPECT_EQ(interval_text({1.5, 1.4, 1.6, 0.5, 2}), "1.40 to 1.60");
}

}  // namespace
}  // namespace lockstep::bench::data_parallel
