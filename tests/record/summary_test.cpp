#include "lockstep/record/summary.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/record/evaluation_result.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Mistake = Confusion::Mistake;

RunSummary summary() {
  RunSummary result;
  result.model = "toy";
  result.data = "mock";
  result.parallel = "ddp";
  result.world_size = 2;
  result.batch_size = 128;
  result.precision = "32";
  result.epochs = {{.epoch = 1,
                       .train_seconds = 2.5,
                       .train_loss = 0.5,
                       .samples = 60000,
                       .samples_per_s = 24000},
      {.epoch = 2,
          .train_seconds = 2,
          .train_loss = 0.25,
          .val = {.loss = 0.375, .top1 = 0.875},
          .samples = 60000,
          .samples_per_s = 30000,
          .val_seconds = 0.5,
          .val_samples = 10000}};
  result.test.top1 = 0.875;
  result.stopped_by = "epochs";
  result.peak_memory_bytes = 3000000000;
  return result;
}

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(Summary, TheTableSaysNothingOfATestThatThereWasNot) {
  RunSummary result = summary();
  result.epochs.back().validated = true;
  EXPECT_THAT(epoch_table(result), ::testing::HasSubstr("test accuracy 0.8750"));
  result.test = {};
  EXPECT_THAT(epoch_table(result), ::testing::Not(::testing::HasSubstr("test")));
}

TEST(Summary, HasTheKeysOfTheFormatInTheirOrder) {
  const auto object = nlohmann::ordered_json::parse(to_json(summary()));
  EXPECT_THAT(keys_of(object),
      ElementsAre("v", "model", "data", "parallel", "world_size", "stages", "chunks", "batch_size",
          "precision", "epochs", "eval_metric", "best", "test_loss", "test_accuracy",
          "test_accuracy5", "best_test_loss", "best_test_accuracy", "best_test_accuracy5", "steps",
          "skipped_steps", "bad_images", "stopped_by", "parameters_hash", "resumed_from",
          "restarts", "recovery_seconds", "snapshot", "peak_memory_bytes", "exit"));
  const auto& epoch = object["epochs"][1];
  EXPECT_THAT(keys_of(epoch),
      ElementsAre("epoch", "train_seconds", "train_loss", "val_loss", "val_accuracy",
          "val_accuracy5", "ema_loss", "ema_accuracy", "ema_accuracy5", "samples", "samples_per_s",
          "val_seconds", "val_samples"));
  EXPECT_EQ(epoch["val_accuracy"], 0.875);
  EXPECT_TRUE(object["epochs"][0]["val_loss"].is_null());
  EXPECT_FALSE(object["epochs"][0].contains("val_seconds"));
  EXPECT_EQ(object["peak_memory_bytes"], 3000000000);
  EXPECT_TRUE(nlohmann::json::parse(to_json(RunSummary()))["peak_memory_bytes"].is_null());
}

TEST(Summary, IsOneLineWhateverTheNames) {
  RunSummary odd = summary();
  odd.data = "mnist:/a\n\xff\"b";
  odd.epochs[0].train_loss = std::nan("");
  const std::string text = to_json(odd);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(text)["epochs"][0]["train_loss"].is_null());
}

TEST(Summary, NamesTheBestEpoch) {
  RunSummary named = summary();
  EXPECT_TRUE(nlohmann::json::parse(to_json(named))["best"].is_null());
  named.eval_metric = "top1";
  named.best = BestEpoch{.epoch = 2, .value = 0.875};
  const auto object = nlohmann::json::parse(to_json(named));
  EXPECT_EQ(object["eval_metric"], "top1");
  EXPECT_EQ(object["best"], (nlohmann::json{{"epoch", 2}, {"value", 0.875}}));
}

TEST(Summary, TableShowsWhatElseWasMeasured) {
  RunSummary more = summary();
  for (auto& epoch : more.epochs) epoch.validated = true;
  more.epochs[1].val.top5 = 0.96875;
  more.epochs[1].ema.loss = 0.25;
  more.epochs[1].ema.top1 = 0.9;
  EXPECT_EQ(epoch_table(more),
      "epoch   seconds   samples/s  train loss  val loss  val accuracy  val top-5  EMA loss"
      "  EMA accuracy\n"
      "    1      2.50       24000      0.5000         -             -          -         -"
      "             -\n"
      "    2      2.00       30000      0.2500    0.3750        0.8750     0.9688    0.2500"
      "        0.9000\n"
      "test accuracy 0.8750\n");
}

TEST(Summary, HasTokensWhereTheyAreLearned) {
  RunSummary tokens = summary();
  EXPECT_FALSE(json_of(tokens.epochs[0]).contains("tokens_per_s"));
  for (auto& epoch : tokens.epochs) epoch.tokens_per_s = epoch.samples_per_s * 256;
  EXPECT_EQ(json_of(tokens.epochs[0])["tokens_per_s"], 6144000);
  EXPECT_THAT(epoch_table(tokens), ::testing::HasSubstr("samples/s    tokens/s  train loss"));
  EXPECT_THAT(epoch_table(tokens), ::testing::HasSubstr("24000     6144000      0.5000"));
}

// Of a regression, and of a program that has a number of its own.
RunSummary summary_of_another_task() {
  RunSummary result = summary();
  for (auto& epoch : result.epochs) epoch.validated = true;
  result.epochs[1].val = {.loss = 0.375, .rmse = 0.5, .more = {{"off", 3}}};
  result.test = {.loss = 0.375, .rmse = 0.5};
  return result;
}

TEST(Summary, TableShowsWhatAnotherTaskMeasuresAndNoAccuracy) {
  EXPECT_EQ(epoch_table(summary_of_another_task()),
      "epoch   seconds   samples/s  train loss  val loss  val RMSE   val off\n"
      "    1      2.50       24000      0.5000         -         -         -\n"
      "    2      2.00       30000      0.2500    0.3750    0.5000    3.0000\n"
      "test RMSE 0.5000\n");
}

TEST(Summary, ReadsBackWhatAnotherTaskMeasures) {
  const RunSummary written = summary_of_another_task();
  const auto object = nlohmann::json::parse(to_json(written));
  const auto& epoch = object["epochs"][1];
  EXPECT_EQ(epoch["val_rmse"], 0.5);
  EXPECT_TRUE(epoch["val_accuracy"].is_null());
  EXPECT_FALSE(object["epochs"][0].contains("val_rmse")) << "not measured, not written";
  EXPECT_EQ(read_scores(JsonFields(epoch, "x"), "val_"), written.epochs[1].val);
}

TEST(Summary, TestsTheBestWeightsWhereTheyAreNotTheLast) {
  RunSummary tested = summary();
  for (auto& epoch : tested.epochs) epoch.validated = true;
  tested.best_test = {.loss = 0.25, .top1 = 0.9375};
  tested.best = BestEpoch{.epoch = 1, .value = 0.25};
  const auto object = nlohmann::json::parse(to_json(tested));
  EXPECT_EQ(object["best_test_loss"], 0.25);
  EXPECT_EQ(object["best_test_accuracy"], 0.9375);
  EXPECT_TRUE(object["best_test_accuracy5"].is_null());
  EXPECT_THAT(epoch_table(tested),
      ::testing::EndsWith("\ntest accuracy 0.8750, with the weights of the best epoch 0.9375\n"));
  tested.best->epoch = 2;
  EXPECT_THAT(epoch_table(tested), ::testing::EndsWith("\ntest accuracy 0.8750\n"));
}

TEST(Summary, TableHasARowForEachEpoch) {
  EXPECT_EQ(epoch_table(summary()),
      "epoch   seconds   samples/s  train loss  test loss  test accuracy\n"
      "    1      2.50       24000      0.5000          -              -\n"
      "    2      2.00       30000      0.2500     0.3750         0.8750\n");
}

Confusion three_classes() {
  Confusion confusion(3);
  confusion.add(0, 0, 5);
  confusion.add(0, 1);
  confusion.add(1, 0, 2);
  confusion.add(0, 1);
  return confusion;
}

TEST(Confusion, CountsByClassAndByWhatItWasTakenFor) {
  const Confusion confusion = three_classes();
  EXPECT_EQ(confusion.classes(), 3);
  EXPECT_EQ(confusion.count(0, 0), 5);
  EXPECT_EQ(confusion.count(0, 1), 2);
  EXPECT_EQ(confusion.count(1, 0), 2);
  EXPECT_EQ(confusion.count(1, 1), 0);
  EXPECT_EQ(confusion.of_class()[0].samples, 7);
  EXPECT_EQ(confusion.of_class()[0].right, 5);
  EXPECT_EQ(confusion.of_class()[0].accuracy(), 5.0 / 7);
  EXPECT_EQ(confusion.of_class()[1].accuracy(), 0);
  EXPECT_FALSE(confusion.of_class()[2].accuracy()) << "it has no samples";
}

TEST(Confusion, TheMostFrequentMistakesComeFirstAndEqualOnesByClass) {
  Confusion confusion = three_classes();
  confusion.add(2, 1, 3);
  EXPECT_THAT(
      confusion.mistakes(9), ElementsAre(Mistake{2, 1, 3}, Mistake{0, 1, 2}, Mistake{1, 0, 2}));
  EXPECT_THAT(confusion.mistakes(1), ElementsAre(Mistake{2, 1, 3}));
  EXPECT_THAT(Confusion(3).mistakes(1), IsEmpty());
}

TEST(Confusion, AClassThatIsNoneIsRefused) {
  Confusion confusion(3);
  for (const std::int64_t other : {-1, 3}) {
    EXPECT_THROW(confusion.add(other, 0), InvalidArgument);
    EXPECT_THROW(confusion.add(0, other), InvalidArgument);
  }
  EXPECT_THAT(confusion.counts(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
