// Shows that two ranks with half the batch each train as one rank with the whole: same losses, same
// images.

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/train_command.h"
#include "tests/process/train_idx_files.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using Words = std::vector<std::string>;

std::vector<double> losses(const std::string& split, const Words& words) {
  const TemporaryFolder folder;
  Words all = {"--output", folder.str() + "/run", "--log-interval", "1", "--progress", "none"};
  all.insert(all.end(), words.begin(), words.end());
  const auto ended = train(all);
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::ifstream file(folder.str() + "/run/metrics.jsonl");
  std::vector<double> found;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object["split"] == split) found.push_back(object["loss"]);
  }
  return found;
}

void expect_same(
    const std::vector<double>& one, const std::vector<double>& two, std::size_t count) {
  ASSERT_EQ(one.size(), count);
  ASSERT_EQ(two.size(), count);
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(one[i] - two[i]));
    EXPECT_NEAR(one[i], two[i], 1e-4) << "at step " << i + 1;
  }
  ::testing::Test::RecordProperty("worst_difference", std::to_string(worst));
}

TEST(TrainParity, FiftyStepsOfFashionMnist) {
  const Words common = {"--model", "mnist-small", "--max-steps", "50", "--backend", "auto"};
  Words one = common, two = common;
  one.insert(one.end(), {"--batch-size", "256"});
  two.insert(two.end(), {"--batch-size", "128", "--nproc-per-node", "2"});
  const auto alone = losses("train", one);
  expect_same(alone, losses("train", two), 50);
  EXPECT_LT(alone.back(), 0.7 * alone.front()) << "a curve that does not fall proves nothing";
}

TEST(TrainParity, TheLastPartialBatchToo) {
  const TemporaryFolder folder;
  write_idx_files(folder.str(), 500, 67);
  const Words common = {"--data", "mnist:" + folder.str(), "--epochs", "2", "--opt", "sgd"};
  Words one = common, two = common;
  one.insert(one.end(), {"--batch-size", "64"});
  two.insert(two.end(), {"--batch-size", "32", "--nproc-per-node", "2"});
  expect_same(losses("train", one), losses("train", two), 16);
  expect_same(losses("val", one), losses("val", two), 2);
}

TEST(TrainParity, ALinearScaleMultipliesTheRateByTheRanks) {
  const TemporaryFolder folder;
  write_idx_files(folder.str(), 256, 64);
  const Words common = {"--data", "mnist:" + folder.str(), "--max-steps", "10", "--opt", "sgd"};
  Words one = common, two = common;
  one.insert(one.end(), {"--batch-size", "64", "--lr", "0.02"});
  two.insert(
      two.end(),
      {"--batch-size", "32", "--lr", "0.01", "--lr-scale", "linear", "--nproc-per-node", "2"});
  expect_same(losses("train", one), losses("train", two), 10);
}

TEST(TrainParity, SerialAndDdpOfOneRankAreTheSame) {
  const TemporaryFolder folder;
  write_idx_files(folder.str(), 256, 64);
  const Words common = {"--data", "mnist:" + folder.str(), "--epochs", "2", "--parallel"};
  Words serial = common, ddp = common;
  serial.push_back("serial");
  ddp.push_back("ddp");
  const auto one = losses("train", serial);
  EXPECT_EQ(one.size(), 4u);
  EXPECT_EQ(one, losses("train", ddp)) << "bit for bit";
}

}  // namespace
}  // namespace lockstep::testing
