// Runs `lockstep train` from start to end, on one rank and on two.

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kTrainImages = 500;  // not a multiple of the batch: every epoch has a partial one
constexpr int kTestImages = 131;   // not a multiple of two ranks

class TrainRun : public ::testing::Test {
 protected:
  std::string output() const { return folder_.file("run"); }

  Ended run(const std::string& more) const {
    return train(data_.flag() + " --output " + output() + " --model mnist-small " + more);
  }

  Json summary() const { return Json::parse(contents(output() + "/summary.json")); }

  std::vector<Json> metrics() const { return json_lines(output() + "/metrics.jsonl"); }

  IdxFiles data_{kTrainImages, kTestImages};
  TemporaryFolder folder_;
};

std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.size() - 1);
  return body.substr(body.rfind('\n') + 1);
}

TEST_F(TrainRun, LeavesEveryFileAndATableAndEveryStepOnce) {
  const auto ended = run("--batch-size 32 --epochs 4 --log-interval 5 --json").with_code(0);
  for (const char* name :
      {"config.toml", "command.txt", "env.json", "metrics.jsonl", "summary.json", "logs"}) {
    EXPECT_TRUE(std::filesystem::exists(output() + "/" + name)) << name;
  }
  EXPECT_THAT(
      ended.out, HasSubstr("epoch   seconds   samples/s  train loss  test loss  test accuracy"));
  EXPECT_THAT(ended.out, HasSubstr("The run's files are in " + output()));
  EXPECT_EQ(last_line(ended.out), last_line(contents(output() + "/summary.json")));
  EXPECT_EQ(summary()["epochs"].size(), 4u);
  EXPECT_EQ(summary()["epochs"][0]["samples"], kTrainImages);
  EXPECT_EQ(summary()["steps"], 4 * 16);
  EXPECT_EQ(summary()["stopped_by"], "epochs");
  EXPECT_EQ(summary()["exit"], 0);
  EXPECT_GT(summary()["test_accuracy"].get<double>(), 0.9);

  std::int64_t validations = 0;
  std::vector<std::int64_t> steps;
  for (const auto& line : metrics()) {
    EXPECT_EQ(line["v"], 1);
    if (line["split"] == "val") {
      ++validations;
      EXPECT_EQ(line["step"], 16 * line["epoch"].get<int>());
      continue;
    }
    steps.push_back(line["step"]);
    EXPECT_GT(line["samples_per_s"].get<double>(), 0);
    EXPECT_LE(line["data_ms"].get<double>(), line["step_ms"].get<double>());
  }
  EXPECT_EQ(validations, 4);
  EXPECT_EQ(steps,
      (std::vector<std::int64_t>{5, 10, 15, 16, 20, 25, 30, 32, 35, 40, 45, 48, 50, 55, 60, 64}));
}

TEST_F(TrainRun, TwoRanksCountEveryTestImageOnce) {
  run("--nproc-per-node 2 --batch-size 16 --epochs 4").with_code(0);
  EXPECT_EQ(summary()["world_size"], 2);
  EXPECT_EQ(summary()["parallel"], "ddp");
  const double hits = summary()["test_accuracy"].get<double>() * kTestImages;
  EXPECT_NEAR(hits, std::round(hits), 1e-9);
  EXPECT_GT(summary()["test_accuracy"].get<double>(), 0.9);
}

TEST_F(TrainRun, SameSeedGivesTheSameBits) {
  for (const std::string ranks : {"1", "2"}) {
    std::vector<std::string> hashes;
    for (int time = 0; time < 2; ++time) {
      std::filesystem::remove_all(output());
      ASSERT_EQ(run("--nproc-per-node " + ranks + " --max-steps 20").code(), 0);
      hashes.push_back(summary()["parameters_hash"]);
    }
    EXPECT_EQ(hashes[0], hashes[1]) << ranks << " ranks";
    std::filesystem::remove_all(output());
    ASSERT_EQ(run("--nproc-per-node " + ranks + " --max-steps 20 --seed 43").code(), 0);
    EXPECT_NE(summary()["parameters_hash"], hashes[0]) << "the seed changes nothing";
  }
}

TEST_F(TrainRun, EveryEpochSeesAllImagesInAnotherOrder) {
  // A step this small leaves the weights as they are, so losses tell which images a step saw.
  ASSERT_EQ(run("--batch-size 50 --epochs 2 --opt sgd --lr 1e-30 --log-interval 1").code(), 0);
  const Json epochs = summary()["epochs"];
  const double first = epochs[0]["train_loss"], second = epochs[1]["train_loss"];
  EXPECT_NEAR(first, second, 1e-5);
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 22u);
  EXPECT_GT(std::abs(lines[0]["loss"].get<double>() - lines[11]["loss"].get<double>()), 1e-5);
}

TEST_F(TrainRun, StepsEndIt) {
  ASSERT_EQ(run("--batch-size 32 --max-steps 21").code(), 0);
  EXPECT_EQ(summary()["steps"], 21);
  EXPECT_EQ(summary()["stopped_by"], "max-steps");
  ASSERT_EQ(summary()["epochs"].size(), 2u);
  EXPECT_EQ(summary()["epochs"][1]["samples"], 5 * 32);
  EXPECT_FALSE(summary()["test_accuracy"].is_null()) << "what ends early is still evaluated";
}

TEST_F(TrainRun, TimeEndsItOnAllRanks) {
  run("--nproc-per-node 2 --max-time 0.5s").with_code(0);
  EXPECT_EQ(summary()["stopped_by"], "time");
  EXPECT_GT(summary()["steps"], 0);
}

TEST_F(TrainRun, EpochsMayBeCutShort) {
  ASSERT_EQ(run("--limit-train-batches 3 --epochs 2 --val-interval 0").code(), 0);
  EXPECT_EQ(summary()["steps"], 6);
  EXPECT_TRUE(summary()["epochs"][0]["val_loss"].is_null());
  EXPECT_FALSE(summary()["epochs"][1]["val_loss"].is_null());
}

TEST_F(TrainRun, EvaluationsMayBeLeftOut) {
  ASSERT_EQ(run("--max-steps 3 --val-interval never").code(), 0);
  EXPECT_EQ(summary()["steps"], 3);
  EXPECT_TRUE(summary()["epochs"][0]["val_loss"].is_null());
  EXPECT_TRUE(summary()["test_loss"].is_null());
  EXPECT_TRUE(summary()["best"].is_null());
  EXPECT_THAT(run("--val-interval -2").with_code(2).err,
      HasSubstr("--val-interval must be a whole number from 0 to 1000000, or never: -2"));
}

TEST_F(TrainRun, EveryOptimizerAndPrecisionLearns) {
  for (const std::string way : {"--opt sgd", "--opt adamw", "--precision bf16-mixed"}) {
    std::filesystem::remove_all(output());
    ASSERT_EQ(run("--batch-size 8 --epochs 1 " + way).code(), 0) << way;
    EXPECT_GT(summary()["test_accuracy"].get<double>(), 0.8) << way;
  }
}

TEST_F(TrainRun, ProgressGoesToStderrAndCanBeSilent) {
  const auto shown = run("--epochs 1");
  EXPECT_THAT(shown.err, HasSubstr("epoch 1/1"));
  EXPECT_THAT(shown.err, ::testing::Not(HasSubstr("\x1b"))) << "no bar where there is no terminal";
  std::filesystem::remove_all(output());
  EXPECT_EQ(run("--epochs 1 --progress none").err, "");
}

}  // namespace
}  // namespace lockstep::testing
