// Trains by the tasks of plugins, and gives `lockstep train` tasks that are not what they should
// be.

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class PluginTask : public ::testing::Test {
 protected:
  // The task of examples/plugin, of a net of ours.
  std::string mirrored() const {
    return concat(data_.flag(), " ", plugin_flag("nets"),
        "--task mirrored --model mnist-small --seed 3 --opt sgd --lr 0.1 ");
  }

  Ended refused(const std::string& flags) const {
    const TemporaryFolder folder;
    return train(concat(data_.flag(), " --max-steps 1 --output ", folder.file("run"), " ", flags));
  }

  IdxFiles data_{96, 40};
};

// Shares of 14, 13 and 13 samples of the test set, and of 11 and 10 of a batch.
TEST_F(PluginTask, IsTheSameInEveryWay) {
  const std::string flags = mirrored() + "--epochs 2 ";
  const TrainedRun alone = trained_run(flags + "--batch-size 32");
  EXPECT_LT(alone.losses().back(), alone.losses().front());
  EXPECT_GT(alone.values("val", "accuracy").back(), 0.2);
  EXPECT_NE(trained_run(concat(data_.flag(), " --seed 3 --opt sgd --lr 0.1 --batch-size 32"))
                .losses()
                .front(),
      alone.losses().front())
      << "cross entropy alone";
  for (const std::string way :
      {"--parallel dp --places 2 --batch-size 16", "--nproc-per-node 2 --batch-size 16",
          "--parallel ddp --places 2 --batch-size 16", "--grad-accum-steps 2 --batch-size 16"}) {
    const TrainedRun spread = trained_run(flags + way);
    SCOPED_TRACE(way);
    expect_near(spread.losses(), alone.losses(), 6);
    for (const char* number : {"loss", "accuracy", "apart"})
      expect_near(spread.values("val", number), alone.values("val", number), 2);
  }
}

TEST_F(PluginTask, NumbersAreThoseOfAllSamplesWhateverTheShares) {
  const std::string flags = mirrored() + "--epochs 1 --lr 1e-9 --batch-size 12 ";
  const TrainedRun alone = trained_run(flags), three = trained_run(flags + "--nproc-per-node 3");
  for (const char* number : {"loss", "accuracy", "apart"})
    EXPECT_NEAR(three.values("val", number).back(), alone.values("val", number).back(), 1e-6)
        << number;
}

TEST_F(PluginTask, IsEvaluatedAsItWasInTraining) {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train(concat(mirrored(), "--epochs 1 --batch-size 32 --output ", run)).with_code(0);
  const auto record = json_lines(run + "/metrics.jsonl").back();
  const Ended ended = run_command(words(concat("eval --json --run ", run))).with_code(0);
  const auto evaluated = nlohmann::json::parse(ended.out);
  for (const char* number : {"loss", "accuracy", "apart"})
    EXPECT_EQ(evaluated[number], record[number]) << number;
  EXPECT_EQ(evaluated["loss_name"], "mirrored");
  EXPECT_EQ(evaluated["loss_plugin"], "nets.so");
}

TEST_F(PluginTask, ItsNumbersDecideWhichEpochIsBest) {
  const auto best = [&](const std::string& metric) -> nlohmann::json {
    return trained_run(concat(mirrored(), "--epochs 4 --eval-metric ", metric)).summary;
  };
  const auto summary = best("min:apart");
  std::vector<double> values;
  for (const auto& epoch : summary["epochs"]) values.push_back(epoch["val_apart"]);
  ASSERT_NE(*std::ranges::min_element(values), *std::ranges::max_element(values));
  EXPECT_EQ(summary["eval_metric"], "min:apart");
  EXPECT_EQ(summary["best"]["value"], *std::ranges::min_element(values));
  EXPECT_EQ(best("max:apart")["best"]["value"], *std::ranges::max_element(values));
  EXPECT_GT(best("top1")["best"]["value"], 0.2);
}

// Stopped within an epoch, on two ranks.
TEST_F(PluginTask, AResumeGivesTheSameBits) {
  const TemporaryFolder folder;
  const auto to = [&](int steps, const std::string& output) {
    train(concat(mirrored(), "--model chain --batch-size 8 --nproc-per-node 2 --resume auto ",
              "--max-steps ", steps, " --output ", folder.file(output)))
        .with_code(0);
    return contents(folder.path() / output / "model.safetensors");
  };
  to(4, "stopped");
  EXPECT_EQ(to(9, "stopped"), to(9, "whole"));
  EXPECT_THAT(train(concat(data_.flag(), " --resume auto --max-steps 9 --model mnist-small",
                        " --output ", folder.file("whole")))
                  .with_code(3)
                  .err,
      HasSubstr("--task: the snapshot has \"mirrored\", now no value"));
}

// Whose forward gives no scores; its number is in evaluations alone.
TEST_F(PluginTask, ANetOfThePluginIsReachedByItsType) {
  const std::string flags = concat(
      data_.flag(), " ", plugin_flag("tasks"), "--model coder --epochs 2 --opt sgd --lr 0.1 ");
  const TrainedRun alone = trained_run(flags + "--task coding --batch-size 32");
  const auto val = alone.values("val", "loss");
  EXPECT_LT(val.back(), val.front());
  for (const std::string way :
      {"--parallel dp --places 2 --batch-size 16", "--nproc-per-node 2 --batch-size 16"}) {
    const TrainedRun spread = trained_run(flags + "--task coding " + way);
    SCOPED_TRACE(way);
    expect_near(spread.losses(), alone.losses(), 6);
    expect_near(spread.values("val", "size"), alone.values("val", "size"), 2);
  }
  EXPECT_THAT(trained_run(flags + "--task short --precision bf16-mixed").losses(),
      ::testing::Each(::testing::Gt(0)));
}

// Each of the two optimizers goes on from its own state.
TEST_F(PluginTask, AResumeOfSeveralTurnsGivesTheSameBits) {
  const TemporaryFolder folder;
  const auto to = [&](int steps, const std::string& output) {
    train(concat(plugin_flag("critic"), "--data ring --model gan --task gan --batch-size 32 ",
              "--nproc-per-node 2 --resume auto --max-steps ", steps, " --output ",
              folder.file(output)))
        .with_code(0);
    return contents(folder.path() / output / "model.safetensors");
  };
  to(7, "stopped");
  EXPECT_EQ(to(20, "stopped"), to(20, "whole"));
}

TEST_F(PluginTask, WhatSeveralTurnsCannotDoIsRefused) {
  const auto refusal = [&](const std::string& flags) {
    const TemporaryFolder folder;
    return train(concat(plugin_flag("critic"), "--data ring --model gan --task gan --output ",
                     folder.file("run"), " ", flags))
        .with_code(2)
        .err;
  };
  EXPECT_THAT(refusal("--parallel mp"), HasSubstr("--task gan needs all of it"));
  EXPECT_THAT(refusal("--checkpoint always"), HasSubstr("--task gan calls the net itself"));
  EXPECT_THAT(refusal("--grad-accum-steps 2"), HasSubstr("each turn of --task gan takes the same"));
  EXPECT_THAT(refusal("--precision 16-mixed"), HasSubstr("scales one loss, and --task gan has"));
  for (const std::string more : {"", " --dry-run"})
    EXPECT_THAT(refusal("--freeze generator.*" + more),
        HasSubstr("the turn generator of --task steps the parameters of generator, and the model "
                  "trains none there"));
}

TEST_F(PluginTask, UnknownNamesAreRefusedWithThoseThatThereAre) {
  EXPECT_THAT(refused("--task regresion").with_code(2).err,
      HasSubstr("or of a --plugin: regresion; did you mean regression"));
  for (const std::string more : {"", " --dry-run"})
    EXPECT_THAT(refused(plugin_flag("nets") + "--task mirror" + more).with_code(2).err,
        HasSubstr("there is no such task: mirror; there are classification, "));
  EXPECT_THAT(refused(plugin_flag("taken_task")).with_code(2).err,
      HasSubstr("a name is taken or empty: tokens"));
}

TEST_F(PluginTask, FlagsThatItHasNoUseForAreRefused) {
  const auto refusal = [&](const std::string& flags) {
    return refused(concat(plugin_flag("nets"), "--task mirrored ", flags)).with_code(2).err;
  };
  EXPECT_THAT(refusal("--loss focal"), HasSubstr("the task mirrored has a loss of its own"));
  EXPECT_THAT(refusal("--smoothing 0.1"), HasSubstr("--smoothing is for cross entropy"));
  EXPECT_THAT(refusal("--eval-metric max:near"),
      HasSubstr("the task mirrored measures loss, top1, max:apart, min:apart"));
  EXPECT_THAT(refusal("--eval-metric apart"), HasSubstr("--eval-metric must be one of loss, "));
  for (const std::string way : {"--parallel pp", "--parallel mp --nproc-per-node 2"})
    EXPECT_THAT(refusal("--model chain " + way),
        HasSubstr("--task mirrored needs all of it; take serial, dp or ddp"));
}

// Before the first step, by one rank and by two.
TEST_F(PluginTask, WhatIsNoTaskEndsItWithCodeTwo) {
  const auto expect_refusal = [&](const std::string& task, const std::string& text) {
    for (const std::string way : {"", " --nproc-per-node 2", " --dry-run"})
      EXPECT_THAT(refused(concat(plugin_flag("bad"), "--task ", task, way)).with_code(2).err,
          HasSubstr(text))
          << way;
  };
  expect_refusal("throws", "the task throws failed: no task here");
  expect_refusal("misfitting", "takes one tensor, not 2");
  expect_refusal("loss-of-each", "must return as \"loss\" the mean over the batch");
  expect_refusal("number-of-each", "must return as \"each\" the mean over the batch");
  expect_refusal("taken-number", "the model gives a number called \"step\"");
  expect_refusal("of-two", "it is for a net of the type (anonymous namespace)::TwoImpl");
}

TEST_F(PluginTask, WhatTheFirstStepShowsEndsItWithCodeTwo) {
  EXPECT_THAT(refused(plugin_flag("bad") + "--task without-gradient").with_code(2).err,
      HasSubstr("returns a loss without a gradient"));
  EXPECT_THAT(refused(plugin_flag("bad") + "--task changing").with_code(2).err,
      HasSubstr("the same numbers for every batch: of-two, and then of-more"));
}

}  // namespace
}  // namespace lockstep::testing
