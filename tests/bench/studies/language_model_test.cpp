#include "bench/studies/language_model.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>

#include "tests/bench/studies/fixtures.h"
#include "tests/bench/studies/made_samples.h"

namespace lockstep::bench::language_model {
namespace {

using lockstep::testing::expect_parts;
using ::testing::ElementsAre;
using testing::expect_rows;
using ::testing::HasSubstr;
using testing::report_of;
using testing::table_of;
using testing::text_of;

Study quick(int cores = 2) { return make_study({.cores = cores}); }

TEST(LanguageModelGrid, HasEachWayAtEachLength) {
  const Study study = quick();
  check_study(study);
  std::vector<std::string> ids;
  for (const StudyCell& cell : study.cells) ids.push_back(cell.id);
  EXPECT_THAT(
      ids, ElementsAre("serial-p1-t64-s9", "ddp-p2-t64-s9", "fsdp-p2-t64-s9", "pp-p2-t64-s9",
               "serial-p1-t256-s9", "ddp-p2-t256-s9", "fsdp-p2-t256-s9", "pp-p2-t256-s9"));
  EXPECT_THAT(testing::cell_named(study, "pp-p2-t256-s9").command,
      ElementsAre("train", "--model", "gpt2-nano", "--data", "text:{bench}/data/text",
          "--sequence-length", "256", "--batch-size", "8", "--opt", "adamw", "--lr", "1e-3",
          "--max-steps", "9", "--log-interval", "1", "--val-interval", "never",
          "--snapshot-interval", "never", "--progress", "none", "--parallel", "pp",
          "--nproc-per-node", "2", "--max-restarts", "0", "--chunks", "4"));
  const Study full = make_study({.full = true, .cores = 16, .data = {"tokens:/d"}});
  check_study(full);
  EXPECT_EQ(full.cells.size(), 12U);
  EXPECT_EQ(testing::after(full.cells.back().command, "--data"), "tokens:/d");
  EXPECT_EQ(testing::after(full.cells.back().command, "--num-classes"), "50257");
}

TEST(LanguageModelGrid, GivesRanksEqualSharesOfTheSameBatch) {
  for (const int cores : {1, 2, 3, 4, 16}) {
    const Study study = quick(cores);
    for (const StudyCell& cell : study.cells) {
      const TrainOptions options = testing::train_options_of(cell);
      const bool is_shared =
          options.parallel == Parallel::kDdp || options.parallel == Parallel::kFsdp;
      const std::string batch = std::to_string(options.batch_size * (is_shared ? cell.places : 1));
      EXPECT_EQ(batch, testing::cell_named(study, cell.id).settings.at(4).value) << cell.id;
      EXPECT_EQ(batch, study.cells.front().settings.at(4).value) << cell.id;
    }
  }
}

TEST(LanguageModelData, IsDrawnOnceAndAlike) {
  const lockstep::testing::TemporaryFolder folder;
  const auto text = [&](const std::string& name) {
    std::ifstream file(folder.path() / "data" / "text" / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  prepare({.cores = 2, .data = {"text:/elsewhere"}}, folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  prepare({.cores = 2}, folder.path());
  const std::string first = text("train.txt");
  EXPECT_GT(first.size(), std::size_t{2} << 20);
  EXPECT_NE(first.substr(0, 100), text("val.txt").substr(0, 100));
  std::ofstream(folder.path() / "data" / "text" / "train.txt") << "kept";
  prepare({.cores = 2}, folder.path());
  EXPECT_EQ(text("train.txt"), "kept");
  std::filesystem::remove_all(folder.path() / "data");
  prepare({.cores = 2}, folder.path());
  EXPECT_EQ(text("train.txt"), first);
}

class LanguageModelValues : public testing::RunFolder {};

TEST_F(LanguageModelValues, AreTokensMemoryOfARankAndTheLastLoss) {
  for (const int step : {1, 2, 3})
    add({.step = step,
        .split = "train",
        .scores = {.loss = 5.0 - step},
        .samples_per_s = step == 1 ? 1 : 8,
        .step_ms = step == 1 ? 8000 : 1000,
        .data_ms = 0});
  RunSummary summary;
  summary.peak_memory_bytes = 3000;
  write(summary);
  const auto values = values_of({.way = "ddp", .places = 2, .length = 64}, run());
  EXPECT_NEAR(values.at(kRate), 8 * 64, 1e-9);
  EXPECT_NEAR(values.at("first_step_seconds"), 8, 1e-9);
  EXPECT_EQ(values.at(kRankMemory), 1500);
  EXPECT_EQ(values.at(kLoss), 2);
}

// One place makes 1000 tokens a second with sequences of 64, 800 with 256.
std::vector<Sample> made(const Study& study, const std::map<std::string, double>& losses = {}) {
  const std::map<std::string, double> factors{
      {"serial", 1}, {"ddp", 1.8}, {"fsdp", 1.5}, {"pp", 0.9}};
  std::vector<Sample> samples;
  for (int round = 1; round <= 3; ++round)
    for (const StudyCell& cell : study.cells) {
      const double factor = factors.at(cell.settings.at(0).value);
      const auto loss = losses.find(cell.settings.at(0).value);
      if (!losses.empty() && loss == losses.end()) continue;
      const double rate = cell.settings.at(2).value == "64" ? 1000 : 800;
      samples.push_back(testing::made_sample("language-model", cell, round,
          {{kRate, rate * factor * (1 + 0.01 * round)}, {kRankMemory, factor * (100 << 20)},
              {kLoss, losses.empty() ? 2.5 + factor / 1000 : loss->second}}));
    }
  return samples;
}

TEST(LanguageModel, ReportsRatesMemoryAndLosses) {
  const auto section = report_of(quick(), made(quick()));
  expect_rows(table_of(section, "language-model-rates"),
      {"serial|1|64|1020|1010 to 1030|-|-|100|2.501|-|",
          "ddp|2|256|1469|1454 to 1483|1.80|1.80 to 1.80|180|2.502|-|"});
  expect_parts(text_of(section),
      {"ddp trains 1.80 times as many tokens a second as one place: faster in every round.",
          "pp trains 0.90 times as many tokens a second as one place: slower in every round.",
          "The most tokens a second: 1836, by ddp with sequences of 64.",
          "Memory of a rank with sequences of 256, in MiB: serial 100, ddp 180, fsdp 150, pp 90.",
          "After 9 steps of these the loss is 2.501 to 2.502, whatever the way."});
  ASSERT_EQ(section.figures.size(), 2U);
  EXPECT_EQ(section.figures[0].x.categories, (std::vector<std::string>{"64", "256"}));
  EXPECT_NEAR(section.figures[1].series.at(1).points.at(0).y, 180, 1e-9);
}

TEST(LanguageModel, NamesTheWaysWhoseLossIsAnother) {
  const auto of = [](const std::map<std::string, double>& losses) {
    return text_of(report_of(quick(), made(quick(), losses)));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(of({{"serial", 2.5}, {"ddp", kNan}, {"fsdp", 2.51}, {"pp", 2.6}}),
      HasSubstr("the loss is 2.500 by serial, but no number by ddp, 2.600 by pp, which is not the "
                "same."));
  EXPECT_THAT(of({{"serial", kNan}, {"ddp", 2.5}}),
      HasSubstr("the loss is no number by serial, but 2.500 by ddp, which"));
  const std::string alone = of({{"ddp", 2.5}});
  EXPECT_THAT(alone, HasSubstr("After 9 steps of these the loss is 2.500 by ddp."));
  EXPECT_EQ(alone.find("whatever"), std::string::npos);
}

TEST(LanguageModel, ClaimsNothingFromTheOversubscribed) {
  const auto section = report_of(quick(1), made(quick(1)));
  testing::expect_oversubscribed_marks(section);
  EXPECT_THAT(text_of(section), HasSubstr("ddp: no cell has a number, beside one place's"));
}

}  // namespace
}  // namespace lockstep::bench::language_model
