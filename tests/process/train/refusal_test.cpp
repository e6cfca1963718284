// Gives `lockstep train` what cannot work: every refusal has its exit code and says what to do.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/command.h"
#include "tests/process/train/idx_files.h"
#include "tests/train/file_size_limit.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainRefusal : public ::testing::Test {
 protected:
  Ended run(const std::string& more) const {
    return train(data_.flag() + " --output " + output() + " " + more);
  }

  std::string output() const { return folder_.file("run"); }

  IdxFiles data_{64, 16};
  TemporaryFolder folder_;
};

TEST_F(TrainRefusal, UnknownFlagsAndValues) {
  EXPECT_THAT(run("--bach-size 3").with_code(2).err, HasSubstr("--batch-size"));
  EXPECT_EQ(run("--nproc-per-node 2 --epochs 0").code(), 2);
  EXPECT_EQ(run("--model mnist-smal").code(), 2);
  EXPECT_EQ(run("--data minst").code(), 2);
  EXPECT_EQ(run("--nproc-per-node 2 --parallel serial").code(), 2);
  for (const std::string flag : {"--spares", "--grace-period 5"}) {
    const auto without_launcher = run("--max-steps 1 " + flag);
    EXPECT_EQ(without_launcher.code(), 2) << flag;
    EXPECT_THAT(without_launcher.err, HasSubstr("is about ranks that a launcher starts"));
  }
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(TrainRefusal, L1L2WhatNoModelMemoryOrMachineCanDo) {
  const auto refused = [&](const std::string& flags) {
    const auto ended = run("--data mock --precision auto --max-steps 1 " + flags).with_code(2);
    EXPECT_EQ(count_of("\n", ended.err), 1) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(output()));
    return ended.err;
  };
  EXPECT_THAT(refused("--model vgg11 --image-size 1 -b 2"), HasSubstr("give --image-size 32 or"));
  EXPECT_THAT(refused("--model vgg11 --image-size 32 -b 2 --num-classes 2000000000"),
      HasSubstr("--num-classes must be a whole number from 1 to 100000000"));
  EXPECT_THAT(refused("--model vgg11 --image-size 32 -b 2 --num-classes 100000000"),
      HasSubstr("give fewer --num-classes"));
  EXPECT_THAT(refused("--parallel pp --places 2 --chunks 1000 -b 8"), HasSubstr("--chunks 1000"));
  EXPECT_THAT(refused("--nproc-per-node 1000"), HasSubstr("--oversubscribe"));
}

// One sample is left over, of which a batch norm over one pixel has no variance.
TEST_F(TrainRefusal, ABatchThatTheModelCannotTrainOnIsKnownBeforeTheFirstStep) {
  const std::string net = "--data mock --model resnet18 --image-size 32 --max-steps 1 ";
  const auto refused = [&](const std::string& flags) {
    const auto ended = run(net + flags);
    EXPECT_EQ(ended.code(), 2) << flags << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("Expected more than 1 value per channel")) << flags;
    return ended.err;
  };
  for (const char* when : {"", " --dry-run"}) {
    EXPECT_THAT(refused(concat("-b 61", when)),
        HasSubstr("the last batch of an epoch, with 1 sample; give another --batch-size, or leave "
                  "that batch out by --limit-train-batches 491"));
    EXPECT_THAT(refused(concat("-b 1", when)), HasSubstr("1 sample at a time"));
    refused(concat("-b 8 --parallel pp --chunks 8", when));
  }
  EXPECT_EQ(run(net + "-b 61 --limit-train-batches 491 --dry-run").code(), 0);
  EXPECT_EQ(run(net + "-b 61 --freeze bn1.*,layer*.bn*,layer*.downsample.1.* --dry-run").code(), 0);
}

TEST_F(TrainRefusal, M5AnEmptyRankNeverTrainsAlone) {
  const Words arguments = words("train --model toy --data mock --max-steps 1 --output " + output());
  for (const Words& variables : {Words{"RANK=", "WORLD_SIZE=2"}, Words{"WORLD_SIZE=2"},
           Words{"RANK=0", "WORLD_SIZE="}, Words{"RANK=0", "WORLD_SIZE=1099511627776"}}) {
    const auto ended = run_command(arguments, variables);
    EXPECT_EQ(ended.code(), 2) << variables.front() << ' ' << ended.err;
    EXPECT_FALSE(std::filesystem::exists(output()));
  }
}

TEST_F(TrainRefusal, AFolderThatHoldsARun) {
  std::filesystem::create_directories(output());
  std::ofstream(output() + "/metrics.jsonl") << "precious\n";
  const auto ended = run("--nproc-per-node 2 --epochs 1").with_code(2);
  EXPECT_THAT(ended.err, HasSubstr("name a new or empty folder"));
  EXPECT_EQ(contents(output() + "/metrics.jsonl"), "precious\n");
}

TEST_F(TrainRefusal, DataThatIsMissingOrCut) {
  std::filesystem::resize_file(data_.file("t10k-images-idx3-ubyte"), 1000);
  EXPECT_THAT(run("--nproc-per-node 2").with_code(3).err, HasSubstr("t10k-images-idx3-ubyte"));
  std::filesystem::remove(data_.file("train-labels-idx1-ubyte"));
  EXPECT_EQ(run("").code(), 3);
}

TEST_F(TrainRefusal, ACheckpointIsNoFileOfWeights) {
  const std::string checkpoint = LOCKSTEP_WEIGHTS_DATA "/checkpoint.pt";
  const auto ended = run("--pretrained " + checkpoint).with_code(3);
  EXPECT_THAT(ended.err, HasSubstr("lockstep convert " + checkpoint +
                                   " weights.safetensors --only \"model\" (7 tensors)"));
}

TEST_F(TrainRefusal, ALongErrorIsThreeLinesAndTheRestIsInTheLog) {
  const auto ended =
      run("--nproc-per-node 4 --pretrained " LOCKSTEP_WEIGHTS_DATA "/types.safetensors");
  EXPECT_EQ(ended.code(), 3) << ended.err;
  const std::string report = ended.err.substr(ended.err.find("lockstep: the run failed"));
  EXPECT_THAT(report, HasSubstr("the weights do not fit"));
  EXPECT_THAT(report, HasSubstr("missing in the file: "));
  EXPECT_LE(count_of("\n", report), 4) << report;
  const std::string last = "choose the model that the file was made with";
  EXPECT_THAT(report, Not(HasSubstr(last)));
  std::ptrdiff_t logged = 0;
  for (int rank = 0; rank < 4; ++rank)
    logged += count_of(last, contents_so_far(output() + concat("/logs/rank-", rank, ".log")));
  EXPECT_GE(logged, 1) << "its last line is in a log";
}

TEST_F(TrainRefusal, AFolderThatCannotBeMade) {
  std::ofstream(folder_.file("file")) << "x";
  for (const std::string ranks : {"1", "2"}) {
    const auto ended = run("--nproc-per-node " + ranks + " --output " + folder_.file("file/run"));
    EXPECT_EQ(ended.code(), 4) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("Not a directory"));
  }
}

TEST_F(TrainRefusal, ADiskThatFillsUpInTheRun) {
  const FileSizeLimit limit(2000);
  const auto ended = run("--max-steps 1000 --log-interval 1 --val-interval 0").with_code(4);
  EXPECT_THAT(ended.err, HasSubstr("metrics.jsonl"));
}

TEST_F(TrainRefusal, ALossThatIsNotFinite) {
  for (const std::string ranks : {"1", "2"}) {
    std::filesystem::remove_all(output());
    const auto ended = run("--nproc-per-node " + ranks + " --opt sgd --lr 1e30 --log-interval 1");
    EXPECT_EQ(ended.code(), 6) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("in epoch "));
    EXPECT_THAT(ended.err, HasSubstr("step "));
    EXPECT_THAT(ended.err, HasSubstr("--lr"));
    const auto summary = nlohmann::json::parse(contents(output() + "/summary.json"));
    EXPECT_EQ(summary["exit"], 6);
    EXPECT_THAT(contents(output() + "/metrics.jsonl"), HasSubstr("\"nonfinite\":[\"loss\"]"));
  }
}

TEST_F(TrainRefusal, ADryRunWritesNothing) {
  for (const std::string ranks : {"1", "2"}) {
    const auto ended = run("--nproc-per-node " + ranks + " --dry-run").with_code(0);
    EXPECT_THAT(ended.out, HasSubstr("Would train mnist-small on mnist"));
    EXPECT_THAT(ended.out, HasSubstr("402442 parameters"));
    EXPECT_FALSE(std::filesystem::exists(output()));
  }
  std::filesystem::remove(data_.file("train-labels-idx1-ubyte"));
  EXPECT_EQ(run("--dry-run").code(), 3);
}

TEST_F(TrainRefusal, ADryRunTriesWeightsAndFrozenParameters) {
  const auto frozen = run("--dry-run --freeze 0.*").with_code(0);
  EXPECT_THAT(frozen.out, HasSubstr("frozen: 2 of 6 parameters"));
  const auto unknown = run("--dry-run --freeze layer9.*").with_code(2);
  EXPECT_THAT(unknown.err, HasSubstr("--freeze matches no parameter: layer9.*"));
  const auto missing = run("--dry-run --pretrained " + folder_.file("none.safetensors"));
  EXPECT_NE(missing.code(), 0);
  EXPECT_THAT(missing.err, HasSubstr("none.safetensors"));
}

TEST_F(TrainRefusal, HelpIsNotARefusal) {
  EXPECT_THAT(train("--help").with_code(0).out, HasSubstr("--nproc-per-node"));
}

// What `--device` and `lockstep env --check-devices` say where there is no GPU: here none is
// visible, whatever this host has.

const Words kNoGpu = {"CUDA_VISIBLE_DEVICES="};

// Which one depends on the LibTorch and the driver of this host.
const auto kSaysWhatToDo = AnyOf(HasSubstr("./dev setup --gpu"), HasSubstr("NVIDIA driver"));

TEST(DeviceRefusal, AGpuThatIsDemandedAndNotThere) {
  const TemporaryFolder folder;
  const auto ended =
      run_command(words("train --model toy --data mock --max-steps 1 --device cuda --output " +
                        folder.file("run")),
          kNoGpu);
  EXPECT_EQ(ended.code(), 4) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("train: --device cuda: "), kSaysWhatToDo));
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST(DeviceRefusal, ADeviceThatLibTorchDoesNotKnow) {
  const TemporaryFolder folder;
  const auto ended =
      train("--model toy --data mock --max-steps 1 --device cudo --output " + folder.file("run"));
  EXPECT_EQ(ended.code(), 2) << ended.err;
  EXPECT_THAT(
      ended.err, HasSubstr("LibTorch knows no device cudo; name it as cpu, cuda or cuda:1"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST(DeviceRefusal, ASelfTestOfNothing) {
  const auto ended = run_command({"env", "--check-devices"}, kNoGpu).with_code(4);
  EXPECT_THAT(ended.err, HasSubstr("env: there is no accelerator to check"));
  const auto demanded = run_command({"env", "--check-devices", "--device", "cuda"}, kNoGpu);
  EXPECT_EQ(demanded.code(), 4) << demanded.err;
  EXPECT_THAT(demanded.err, AllOf(HasSubstr("--device cuda: "), kSaysWhatToDo));
}

}  // namespace
}  // namespace lockstep::testing
