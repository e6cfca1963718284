// Begins with weights from a file, trains a part of them, and leaves the model in a file, by every
// way of spreading a model.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/process/command.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<TrainWay> kStartWays = {
    {"Serial", "--batch-size 32"},
    {"DataParallel", "--parallel dp --places 2 --batch-size 16"},
    {"Ddp", "--parallel ddp --nproc-per-node 2 --batch-size 16"},
    {"ModelParallel", "--parallel mp --places 2 --batch-size 32"},
    {"Pipeline", "--parallel pp --places 2 --batch-size 32 --schedule zero-bubble --chunks 4"},
    {"PipelineOverRanks", "--parallel pp --nproc-per-node 2 --batch-size 32"},
    {"PipelinesOverRanks", "--parallel ddp+pp --nproc-per-node 4 --stages 2 --batch-size 16"},
};

class TrainStart : public ::testing::Test {
 protected:
  std::string run_folder(const std::string& name) const { return runs_.file(name); }

  Ended train_into(const std::string& name, const std::string& flags) const {
    return train(
        data_.flag() + " --opt sgd --max-steps 3 --output " + run_folder(name) + " " + flags);
  }

  // Trains a little, once for all tests, and gives the run's folder.
  const std::string& first_run() const {
    static const TemporaryFolder kFolder;
    static const std::string kRun = kFolder.file("run");
    static const Ended kEnded = train(
        data_.flag() + " --opt sgd --max-steps 3 --batch-size 32 " + "--lr 0.1 --output " + kRun)
                                    .with_code(0);
    return kRun;
  }

  std::string trained_file() const { return first_run() + "/model.safetensors"; }

  static std::string hash_of(const std::string& run) {
    return nlohmann::json::parse(contents(run + "/summary.json"))["parameters_hash"];
  }

  IdxFiles data_{128, 32};
  TemporaryFolder runs_;
};

bool are_equal(const TensorFile& a, const TensorFile& b, const std::string& name) {
  const auto *left = a.find(name), *right = b.find(name);
  EXPECT_TRUE(left != nullptr && right != nullptr) << name;
  return left != nullptr && right != nullptr && std::ranges::equal(left->bytes, right->bytes);
}

class TrainStartBy : public TrainStart, public ::testing::WithParamInterface<TrainWay> {};

// A rate too small to change a number: what is read, spread, gathered and written is the same.
TEST_P(TrainStartBy, WeightsComeAndGoUnchanged) {
  const auto first = trained_file();
  const std::string still = " --pretrained " + first + " --lr 1e-30";
  const Ended ended = train_into("way", GetParam().flags + still).with_code(0);
  EXPECT_THAT(ended.err, HasSubstr("6 tensors from " + first));
  EXPECT_EQ(hash_of(run_folder("way")), hash_of(first_run()));
  const TensorFile before = read_weights(first);
  const TensorFile after = read_weights(run_folder("way") + "/model.safetensors");
  EXPECT_EQ(after.entries().size(), before.entries().size());
  for (const auto& entry : before.entries()) EXPECT_TRUE(are_equal(before, after, entry.name));
}

// Without the first layers a stage of a pipeline has nothing to train at all; without the last ones
// gradients end early, and those before them still train.
TEST_P(TrainStartBy, FrozenParametersStayAndOthersDoNot) {
  const auto first = trained_file();
  const TensorFile before = read_weights(first);
  for (const std::set<std::string>& frozen : {std::set<std::string>{"0", "4"}, {"4", "6"}}) {
    const std::string names = *frozen.begin() + ".*," + *frozen.rbegin() + ".*";
    const Ended ended = train_into("way",
        GetParam().flags + " --overwrite --lr 0.1 --pretrained " + first + " --freeze " + names);
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("frozen: 4 of 6 parameters"));
    const TensorFile after = read_weights(run_folder("way") + "/model.safetensors");
    for (const std::string layer : {"0", "4", "6"})
      for (const std::string& name : {layer + ".weight", layer + ".bias"})
        EXPECT_EQ(are_equal(before, after, name), frozen.contains(layer)) << name << ": " << names;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainStartBy, ::testing::ValuesIn(kStartWays),
    [](const auto& test) { return test.param.name; });

TEST_F(TrainStart, AHeadOfOtherClassesIsFreshAndThisIsSaid) {
  const auto first = trained_file();
  const Ended ended =
      train_into("more", "--pretrained " + first + " --num-classes 12 --batch-size 32");
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err,
      AllOf(HasSubstr("kept the model's 6.weight: here [12, 64] float32, in the file [10, 64]"),
          HasSubstr("kept the model's 6.bias: here [12] float32, in the file [10]")));
}

// Of several ranks the terminal has the first difference, and the log them all.
TEST_F(TrainStart, WeightsOfAnotherModelEndWithCodeThreeAndAList) {
  const auto first = trained_file();
  const auto list = AllOf(HasSubstr("missing in the file: 3.weight"),
      HasSubstr("not in the model: 4.weight"), HasSubstr("... and 4 more"));
  const std::string flags = "--pretrained " + first + " --model mnist-large ";
  EXPECT_THAT(train_into("alone", flags).with_code(3).err, list);
  const Ended ranks = train_into("ranks", flags + "--nproc-per-node 2").with_code(3);
  EXPECT_THAT(ranks.err, HasSubstr("missing in the file: 3.weight"));
  const std::string logs = run_folder("ranks") + "/logs/rank-";
  const bool is_first =
      ranks.err.find(logs + "0.log") != std::string::npos;  // whoever failed first
  const std::string log = logs + (is_first ? "0.log" : "1.log");
  EXPECT_THAT(ranks.err, HasSubstr(log));
  EXPECT_THAT(contents(log), list);
}

TEST_F(TrainStart, APatternThatMatchesNothingEndsWithCodeTwo) {
  EXPECT_THAT(train_into("none", "--freeze features.*").with_code(2).err,
      HasSubstr("--freeze matches no parameter: features.*; their names are 0.*, 4.*"));
}

}  // namespace
}  // namespace lockstep::testing
