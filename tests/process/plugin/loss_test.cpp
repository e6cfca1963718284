// Trains by mean squared error and by the loss of examples/plugin, and gives `lockstep train`
// losses that are not what they should be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class TrainLoss : public ::testing::TestWithParam<const char*> {
 protected:
  Ended refused(const std::string& flags) const {
    const TemporaryFolder folder;
    return train(concat(data_.flag(), " --max-steps 1 --output ", folder.file("run"), " ",
        plugin_flag("bad"), flags));
  }

  IdxFiles data_{96, 40};
};

TEST_P(TrainLoss, IsTheSameInEveryWay) {
  const std::string flags =
      concat(data_.flag(), " ", plugin_flag("nets"), "--epochs 2 --seed 3 --opt sgd --lr 0.1 ");
  const std::string by_loss = concat(flags, "--loss ", GetParam(), " ");
  const TrainedRun alone = trained_run(by_loss + "--batch-size 32");
  const std::vector<double> losses = alone.losses();
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_GT(trained_run(flags + "--batch-size 32").losses().front(), 1.05 * losses.front());
  for (const std::string way :
      {"--parallel dp --batch-size 16", "--nproc-per-node 2 --batch-size 16",
          "--parallel ddp --places 2 --batch-size 16", "--parallel mp --batch-size 32",
          "--parallel pp --chunks 3 --batch-size 32",  // of 11, 11 and 10 samples
          "--parallel pp --chunks 3 --batch-size 32 --nproc-per-node 2",
          "--grad-accum-steps 2 --batch-size 16"}) {
    const TrainedRun spread = trained_run(by_loss + way);
    SCOPED_TRACE(way);
    expect_near(spread.losses(), losses, 6);
    expect_near(spread.values("val", "loss"), alone.values("val", "loss"), 2);
  }
}

// The last batch of 40 is smaller than the others.
TEST_P(TrainLoss, IsThatOfItsEvaluation) {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Ended trained = train(concat(data_.flag(), " ", plugin_flag("nets"), "--loss ", GetParam(),
      " --epochs 1 --batch-size 32 --precision bf16-mixed --output ", run));
  ASSERT_EQ(trained.code(), 0) << trained.err;
  const auto record = json_lines(run + "/metrics.jsonl").back();
  EXPECT_EQ(record["split"], "val");
  const auto evaluated = [&](const std::string& more) {
    const Ended ended = run_command(words(concat("eval --json --worst 40 --run ", run, more)));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  };
  const auto ours = evaluated("");
  EXPECT_EQ(ours["loss"], record["loss"]);
  EXPECT_EQ(ours["loss_name"], GetParam());
  const bool is_of_plugin = std::string(GetParam()) == "focal";
  EXPECT_EQ(ours["loss_plugin"], is_of_plugin ? nlohmann::json("nets.so") : nlohmann::json());
  EXPECT_NE(evaluated(" --loss cross-entropy")["loss"], record["loss"]);
  double sum = 0;
  for (const auto& sample : ours["worst"]) sum += sample["loss"].get<double>();
  EXPECT_NEAR(sum / 40, ours["loss"].get<double>(), 1e-5);
}

TEST_P(TrainLoss, AResumeKeepsIt) {
  const TemporaryFolder folder;
  const std::string flags = concat(
      data_.flag(), " ", plugin_flag("nets"), "--output ", folder.file("run"), " --resume auto ");
  const std::string by_loss = concat("--loss ", GetParam(), " ");
  ASSERT_EQ(train(concat(flags, by_loss, "--max-steps 1")).code(), 0);
  EXPECT_THAT(train(flags + "--max-steps 2").with_code(3).err,
      HasSubstr(concat("--loss: the snapshot has \"", GetParam(), "\", now no value")));
  EXPECT_EQ(train(concat(flags, by_loss, "--max-steps 2")).code(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, TrainLoss, ::testing::Values("mse", "focal"),
    [](const auto& test) { return std::string(test.param); });

using BadLoss = TrainLoss;

TEST_F(BadLoss, UnknownNamesAreRefusedWithThoseThatThereAre) {
  for (const std::string more : {"", " --dry-run"}) {
    const Ended ended = refused("--loss msee" + more).with_code(2);
    EXPECT_THAT(ended.err, HasSubstr("there is no such loss: msee; there are cross-entropy, mse, "
                                     "throws"));
  }
  EXPECT_THAT(refused("--plugin " LOCKSTEP_PLUGINS "/taken.so").err,
      HasSubstr("a name is taken or empty: mse"));
}

// By one rank, by two, and where only the last stage computes it.
TEST_F(BadLoss, WhatIsNoLossEndsItWithCodeTwo) {
  const auto expect_refusal = [&](const std::string& name, const std::string& text) {
    for (const std::string way : {"", " --nproc-per-node 2", " --parallel pp --chunks 2",
             " --parallel pp --nproc-per-node 2"}) {
      const Ended ended = refused(concat("--loss ", name, way));
      EXPECT_EQ(ended.code(), 2) << name << way << ended.err;
      EXPECT_THAT(ended.err, HasSubstr(text)) << way;
    }
  };
  expect_refusal("throws", "failed: no loss here");
  expect_refusal("of-each", "one number on cpu as a tensor of [], not a tensor of [");
  expect_refusal("detached", "the loss detached has no gradient");
}

TEST_F(BadLoss, OneThatReturnsNothingOrThrowsANumberOrNoNumber) {
  EXPECT_THAT(refused("--loss undefined").err, HasSubstr("not an undefined tensor"));
  EXPECT_THAT(refused("--loss throws-a-number").err, HasSubstr("no std::exception"));
  refused("--loss not-a-number").with_code(6);
}

}  // namespace
}  // namespace lockstep::testing
