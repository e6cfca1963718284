// Gives `lockstep train` what cannot be: every refusal has its exit code and says what to do.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/train_command.h"
#include "tests/process/train_idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class TrainRefusal : public ::testing::Test {
 protected:
  void SetUp() override { write_idx_files(folder_.str(), 64, 16); }

  Ended run(const Words& more) const {
    Words all = {"--data", "mnist:" + folder_.str(), "--output", folder_.str() + "/run"};
    all.insert(all.end(), more.begin(), more.end());
    return train(all);
  }

  TemporaryFolder folder_;
};

TEST_F(TrainRefusal, FlagsThatAreNone) {
  const auto ended = run({"--bach-size", "3"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--batch-size"));
  EXPECT_EQ(run({"--nproc-per-node", "2", "--epochs", "0"}).code, 2);
  EXPECT_EQ(run({"--model", "mnist-smal"}).code, 2);
  EXPECT_EQ(run({"--data", "minst"}).code, 2);
  EXPECT_EQ(run({"--nproc-per-node", "2", "--parallel", "serial"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_.str() + "/run"));
}

TEST_F(TrainRefusal, AFolderThatHoldsARun) {
  std::filesystem::create_directories(folder_.str() + "/run");
  std::ofstream(folder_.str() + "/run/metrics.jsonl") << "precious\n";
  const auto ended = run({"--nproc-per-node", "2", "--epochs", "1"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("name a new or empty folder"));
  EXPECT_EQ(contents(folder_.str() + "/run/metrics.jsonl"), "precious\n");
}

TEST_F(TrainRefusal, DataThatIsMissingOrCut) {
  std::filesystem::resize_file(folder_.str() + "/t10k-images-idx3-ubyte", 1000);
  const auto cut = run({"--nproc-per-node", "2"});
  EXPECT_EQ(cut.code, 3);
  EXPECT_THAT(cut.err, HasSubstr("t10k-images-idx3-ubyte"));
  std::filesystem::remove(folder_.str() + "/train-labels-idx1-ubyte");
  EXPECT_EQ(run({}).code, 3);
}

TEST_F(TrainRefusal, AFolderThatCannotBeMade) {
  std::ofstream(folder_.str() + "/file") << "x";
  for (const char* ranks : {"1", "2"}) {
    const auto ended = run({"--nproc-per-node", ranks, "--output", folder_.str() + "/file/run"});
    EXPECT_EQ(ended.code, 4) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("Not a directory"));
  }
}

TEST_F(TrainRefusal, ADiskThatFillsUpInTheRun) {
  const FileSizeLimit limit(2000);
  const auto ended = run({"--max-steps", "1000", "--log-interval", "1", "--val-interval", "0"});
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("metrics.jsonl"));
}

TEST_F(TrainRefusal, ALossThatIsNoNumber) {
  for (const char* ranks : {"1", "2"}) {
    std::filesystem::remove_all(folder_.str() + "/run");
    const auto ended =
        run({"--nproc-per-node", ranks, "--opt", "sgd", "--lr", "1e30", "--log-interval", "1"});
    EXPECT_EQ(ended.code, 6) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("in epoch "));
    EXPECT_THAT(ended.err, HasSubstr("step "));
    EXPECT_THAT(ended.err, HasSubstr("--lr"));
    const auto summary = nlohmann::json::parse(contents(folder_.str() + "/run/summary.json"));
    EXPECT_EQ(summary["exit"], 6);
    EXPECT_THAT(
        contents(folder_.str() + "/run/metrics.jsonl"), HasSubstr("\"nonfinite\":[\"loss\"]"));
  }
}

TEST_F(TrainRefusal, ADryRunWritesNothing) {
  for (const char* ranks : {"1", "2"}) {
    const auto ended = run({"--nproc-per-node", ranks, "--dry-run"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("Would train mnist-small on mnist"));
    EXPECT_THAT(ended.out, HasSubstr("402442 parameters"));
    EXPECT_FALSE(std::filesystem::exists(folder_.str() + "/run"));
  }
  std::filesystem::remove(folder_.str() + "/train-labels-idx1-ubyte");
  EXPECT_EQ(run({"--dry-run"}).code, 3);
}

TEST_F(TrainRefusal, ADryRunTriesWeightsAndFrozenParameters) {
  const auto frozen = run({"--dry-run", "--freeze", "0.*"});
  EXPECT_EQ(frozen.code, 0) << frozen.err;
  EXPECT_THAT(frozen.out, HasSubstr("frozen: 2 of 6 parameters"));
  const auto unknown = run({"--dry-run", "--freeze", "layer9.*"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--freeze matches no parameter: layer9.*"));
  const auto missing = run({"--dry-run", "--pretrained", folder_.str() + "/none.safetensors"});
  EXPECT_NE(missing.code, 0);
  EXPECT_THAT(missing.err, HasSubstr("none.safetensors"));
}

TEST_F(TrainRefusal, HelpIsNone) {
  const auto ended = train({"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr("--nproc-per-node"));
}

}  // namespace
}  // namespace lockstep::testing
