// Evaluates by `lockstep eval` what `lockstep train` left.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kTrainImages = 300;
constexpr int kTestImages = 131;

Ended eval(const std::string& flags) {
  auto words = split(flags, ' ');
  words.insert(words.begin(), "eval");
  return run_command(words);
}

Json evaluated(const std::string& flags) {
  const Ended ended = eval(flags + " --json").with_code(0);
  return Json::parse(ended.out);
}

class Eval : public ::testing::Test {
 protected:
  std::string run() const { return folder_.file("run"); }

  // Few steps and a small rate, so that it is still often wrong.
  void train_run(const std::string& more) const {
    const Ended ended = train(concat(data_.flag(), " --output ", run(),
        " --model mnist-small --batch-size 32 --epochs 3 --opt sgd --lr 0.01 ", more));
    ASSERT_EQ(ended.code(), 0) << ended.err;
  }

  // The last, or the best, record of a split.
  Json recorded(const std::string& split, bool best = false) const {
    Json found;
    for (const Json& record : json_lines(run() + "/metrics.jsonl"))
      if (record["split"] == split && (!best || found.is_null() || record["loss"] < found["loss"]))
        found = record;
    EXPECT_FALSE(found.is_null()) << split;
    return found;
  }

  static void expect_same(const Json& evaluation, const Json& record) {
    for (const char* score : {"loss", "accuracy", "accuracy5"})
      EXPECT_EQ(evaluation[score], record[score]) << score;
  }

  IdxFiles data_{kTrainImages, kTestImages};
  TemporaryFolder folder_;
};

TEST_F(Eval, GivesTheScoresThatTheRunRecordedForTheseWeights) {
  // The rate rises until it spoils what was learned: the best epoch is an earlier one.
  train_run("--warmup-epochs 1 --warmup-lr 0.05 --lr 2 --momentum 0");
  const Json best = evaluated("--run " + run());
  EXPECT_EQ(best["weights"]["which"], "best");
  expect_same(best, recorded("val", /*best=*/true));
  const Json last = evaluated("--which last --run " + run());
  EXPECT_EQ(last["weights"]["which"], "last");
  expect_same(last, recorded("val"));
  EXPECT_NE(best["loss"], last["loss"]) << "else it is not known which were evaluated";
}

TEST_F(Eval, GivesThoseOfEachPartOfOtherPrecisionAndOfAverages) {
  train_run("--val-split 0.2 --precision bf16-mixed --model-ema --model-ema-decay 0.5");
  expect_same(evaluated("--split val --run " + run()), recorded("val-ema", /*best=*/true));
  expect_same(evaluated("--split val --which last --run " + run()), recorded("val"));
  EXPECT_NE(recorded("val-ema", /*best=*/true)["loss"], recorded("val")["loss"])
      << "else it is not known which weights were evaluated";
  expect_same(evaluated("--which last --run " + run()), recorded("test"));
  const Json train_part = evaluated("--split train --run " + run());
  const Json val_part = evaluated("--split val --run " + run());
  EXPECT_EQ(train_part["samples"].get<int>() + val_part["samples"].get<int>(), kTrainImages);
}

// One training serves all of these.
TEST_F(Eval, ItsConfusionHasEverySampleOnceAndPageAndFileAgree) {
  train_run("");
  const Json json = evaluated("--worst 200 --run " + run());
  int samples = 0, right = 0;
  for (std::size_t label = 0; label < 10; ++label) {
    int in_row = 0;
    for (const Json& count : json["confusion"][label]) in_row += count.get<int>();
    EXPECT_EQ(in_row, json["classes"][label]["samples"]);
    EXPECT_EQ(json["confusion"][label][label], json["classes"][label]["right"]);
    samples += in_row;
    right += json["confusion"][label][label].get<int>();
  }
  EXPECT_EQ(samples, kTestImages);
  EXPECT_EQ(json["samples"], kTestImages);
  EXPECT_DOUBLE_EQ(json["accuracy"], static_cast<double>(right) / kTestImages);
  EXPECT_LT(right, kTestImages) << "else there is nothing to confuse";
  ASSERT_EQ(json["worst"].size(), static_cast<std::size_t>(kTestImages));
  double sum = 0;
  for (const Json& sample : json["worst"]) sum += sample["loss"].get<double>();
  EXPECT_NEAR(sum / kTestImages, json["loss"].get<double>(), 1e-5);

  const std::string page = folder_.file("page.html");
  EXPECT_THAT(eval(concat("--worst 7 --output ", page, " --run ", run())).with_code(0).out,
      AllOf(HasSubstr("mnist-small on mnist, test: 131 samples, precision 32, loss cross-entropy"),
          HasSubstr("the run's best: epoch"), HasSubstr("Samples of each class"),
          HasSubstr("Written: " + page)));
  const std::string html = contents(page);
  EXPECT_EQ(count_of("data:image/png;base64,iVBORw0KGgo", html), 7);
  EXPECT_THAT(html, HasSubstr("confusion-title"));

  const std::string weights = run() + "/model.safetensors";
  const Json of_file = evaluated(
      concat("--weights ", weights, " --model mnist-small --batch-size 32 ", data_.flag()));
  EXPECT_EQ(of_file["weights"]["which"], "file");
  expect_same(of_file, recorded("val"));
  const Json other = evaluated(concat("--run ", run(), " --weights ", weights));
  expect_same(other, recorded("val"));
}

TEST_F(Eval, NamesTheClassesOfCifar100) {
  const std::string set = folder_.file("set"), page = folder_.file("page.html");
  run_command({"data", "synthesize", "cifar100", set, "--train", "100", "--test", "100"})
      .with_code(0);
  const Ended trained = train(concat("--data cifar100:", set, " --output ", run(),
      " --model resnet18-cifar --batch-size 4 --max-steps 1 --val-interval never"));
  ASSERT_EQ(trained.code(), 0) << trained.err;
  EXPECT_THAT(eval(concat("--output ", page, " --run ", run())).with_code(0).out,
      AllOf(HasSubstr("The hardest classes"), ContainsRegex("[0-9]+ (disc|ring|bar)-")));
  EXPECT_THAT(contents(page), HasSubstr("57 bar-blotches"));
  EXPECT_EQ(evaluated("--run " + run())["classes"][57]["name"], "bar-blotches");
}

void expect_refused(const std::string& flags, int code, const std::string& text) {
  const Ended ended = eval(flags);
  EXPECT_EQ(ended.code(), code) << flags << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(text));
  EXPECT_THAT(ended.err, Not(HasSubstr("LoadWeightsOptions")))
      << "advice for who calls the library";
  EXPECT_EQ(ended.out, "");
}

TEST_F(Eval, BadFlagsEndItWithCodeTwoAndBadWeightsWithCodeThree) {
  train_run("--limit-train-batches 1");
  const std::string of_run = "--run " + run(), best = run() + "/best.safetensors";
  expect_refused("--json", 2, "eval: needs --run DIR, or --weights FILE with --model and --data");
  expect_refused("--weights w.pth --model toy", 2, "give --model and --data, or the --run");
  expect_refused(of_run + " --which first", 2, "--which must be one of best, last");
  expect_refused(of_run + " --which last --weights w.pth", 2, "--which chooses among");
  expect_refused(of_run + " --worst 3", 2, "--worst is for --output and --json");
  expect_refused(of_run + " --worst 1001", 2, "--worst must be a whole number from 0 to 1000");
  expect_refused(of_run + " --output page.txt", 2, "must be a file that ends in .html");
  expect_refused(of_run + " --output /nowhere/page.html", 2, "there is no folder /nowhere");
  expect_refused(
      of_run + " --split val", 2, "eval: --split val: mnist has no validation samples of its own");
  expect_refused(of_run + " --data nonsense", 2, "eval: --data must be one of");
  expect_refused(of_run + " --model nonsense", 2, "nonsense");
  expect_refused(of_run + " --epochs 3", 2, "there is no flag --epochs");

  expect_refused("--run /nowhere", 3, "/nowhere: there is no such folder");
  expect_refused("--run " + folder_.str(), 3, "holds no config.toml");
  expect_refused(of_run + " --model mnist-large", 3, "missing in the file: 3.weight");
  expect_refused(of_run + " --num-classes 12", 3, "other: 6.weight: here [12, 64]");
  expect_refused(of_run + " --weights " + folder_.file("none.pth"), 3, "none.pth");
  std::filesystem::resize_file(best, std::filesystem::file_size(best) - 1);
  expect_refused(of_run, 3, "best.safetensors");
  for (const char* name : {"best.safetensors", "model.safetensors"})
    std::filesystem::remove(run() + "/" + name);
  expect_refused(of_run, 3, "has neither best.safetensors nor model.safetensors");
  std::ofstream(run() + "/config.toml") << "model = = 3\n";
  expect_refused(of_run, 3, "config.toml: line 1: is not TOML");
}

}  // namespace
}  // namespace lockstep::testing
