#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainCommand parsed(const std::vector<std::string>& arguments, int ranks = 1) {
  return parse_train_flags(
             arguments, {.world_size = ranks, .local_world_size = ranks, .unix_time = 0})
      .value();
}

std::string refusal(const std::vector<std::string>& arguments, int ranks = 1) {
  try {
    parsed(arguments, ranks);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(TrainFlags, NoneGiveTheDefaults) {
  const auto options = parsed({}).options;
  EXPECT_EQ(options.model, "mnist-small");
  EXPECT_EQ(options.data.name, "fashion-mnist");
  EXPECT_EQ(options.parallel, Parallel::kSerial);
  EXPECT_EQ(options.batch_size, 128);
  EXPECT_EQ(options.limits.epochs, 3);
  EXPECT_EQ(options.seed, 42);
  EXPECT_EQ(options.output, "runs/19700101T000000Z-mnist-small-serial");
  EXPECT_EQ(parsed({}, 2).options.parallel, Parallel::kDdp);
}

TEST(TrainFlags, AllAreRead) {
  const auto command = parsed(
      {"--model",
       "toy",
       "--data",
       "mnist:/d:x",
       "--repeat",
       "2",
       "--parallel",
       "ddp",
       "-b",
       "64",
       "--epochs",
       "5",
       "--max-steps",
       "7",
       "--max-time",
       "1m30s",
       "--precision",
       "bf16-mixed",
       "--opt",
       "sgd",
       "--lr",
       "0.5",
       "--momentum",
       "0.8",
       "--weight-decay",
       "1e-4",
       "--lr-scale",
       "sqrt",
       "--output",
       "out",
       "--seed",
       "7",
       "--backend",
       "gloo",
       "--val-interval",
       "0",
       "--log-interval",
       "1",
       "--limit-train-batches",
       "9",
       "--progress",
       "none",
       "--resume",
       "never",
       "--nproc-per-node",
       "2",
       "--dry-run",
       "--json"},
      2);
  const auto& options = command.options;
  EXPECT_TRUE(command.dry_run && command.json);
  EXPECT_EQ(options.data.name, "mnist");
  EXPECT_EQ(options.data.directory, "/d:x");
  EXPECT_EQ(options.repeat, 2);
  EXPECT_EQ(options.batch_size, 64);
  EXPECT_EQ(options.limits.epochs, 5);
  EXPECT_EQ(options.limits.steps, 7);
  EXPECT_EQ(options.limits.seconds, 90);
  EXPECT_EQ(options.precision, Precision::kBf16Mixed);
  EXPECT_EQ(options.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(options.optimizer.lr, 0.5);
  EXPECT_EQ(options.optimizer.momentum, 0.8);
  EXPECT_EQ(options.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(options.optimizer.lr_scale, LrScale::kSqrt);
  EXPECT_EQ(options.backend, "gloo");
  EXPECT_EQ(options.val_interval, 0);
  EXPECT_EQ(options.limit_train_batches, 9);
  EXPECT_EQ(options.progress, ProgressStyle::kNone);
  EXPECT_EQ(options.output, "out");
}

TEST(TrainFlags, StartAndPrecisionAreRead) {
  const auto options = parsed({"--pretrained", "w.pth", "--freeze", "features.*,classifier.0.*",
                               "--precision", "16-mixed"})
                           .options;
  EXPECT_EQ(options.pretrained, "w.pth");
  EXPECT_EQ(options.freeze, (std::vector<std::string>{"features.*", "classifier.0.*"}));
  EXPECT_EQ(options.precision, Precision::k16Mixed);
  EXPECT_EQ(parsed({}).options.freeze, std::vector<std::string>());
}

TEST(TrainFlags, PatternsAreNotEmpty) {
  for (const char* text : {"", ",", "a,,b", "a,"}) {
    EXPECT_THAT(refusal({"--freeze", text}), HasSubstr("--freeze takes patterns")) << text;
  }
}

TEST(TrainFlags, UnderscoresAreDashesInNamesOnly) {
  const auto options = parsed({"--batch_size=32", "--max_steps", "4", "--output=a_b"}).options;
  EXPECT_EQ(options.batch_size, 32);
  EXPECT_EQ(options.limits.steps, 4);
  EXPECT_EQ(options.output, "a_b");
}

TEST(TrainFlags, LastOfTwoCounts) {
  EXPECT_EQ(parsed({"--epochs", "1", "--epochs", "2"}).options.limits.epochs, 2);
}

TEST(TrainFlags, AnotherLimitTakesThePlaceOfThreeEpochs) {
  EXPECT_FALSE(parsed({"--max-steps", "10"}).options.limits.epochs);
  EXPECT_FALSE(parsed({"--max-time", "10s"}).options.limits.epochs);
}

TEST(TrainFlags, OptimizersHaveTheirOwnDefaults) {
  EXPECT_EQ(parsed({"--opt", "sgd"}).options.optimizer.lr, 0.01);
  EXPECT_EQ(parsed({"--opt", "sgd"}).options.optimizer.momentum, 0.9);
  EXPECT_EQ(parsed({"--opt", "adamw"}).options.optimizer.weight_decay, 0.01);
}

TEST(TrainFlags, UnknownOnesAreAnsweredWithTheNearest) {
  EXPECT_THAT(
      refusal({"--epoch", "2"}),
      AllOf(HasSubstr("there is no flag --epoch"), HasSubstr("--epochs")));
  EXPECT_THAT(
      refusal({"--bach-size=2"}),
      AllOf(HasSubstr("there is no flag --bach-size"), HasSubstr("--batch-size")));
  EXPECT_THAT(refusal({"surplus"}), HasSubstr("there is no flag surplus"));
}

TEST(TrainFlags, WrongWordsNameTheFlagAndTheChoice) {
  EXPECT_THAT(
      refusal({"--opt", "adma"}), AllOf(HasSubstr("--opt must be one of adam, sgd, adamw: adma")));
  EXPECT_THAT(
      refusal({"--precision", "64"}),
      HasSubstr("--precision must be one of 32, bf16-mixed, 16-mixed: 64"));
  EXPECT_THAT(
      refusal({"--backend", "nccl"}), HasSubstr("--backend must be one of auto, shm, gloo: nccl"));
  EXPECT_THAT(refusal({"--epochs", "two"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"--epochs", "1.5"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"--epochs"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"--max-time", "soon"}), HasSubstr("soon"));
  EXPECT_THAT(refusal({"--data", "mnist:"}), HasSubstr("no folder after the colon"));
}

TEST(TrainFlags, EveryWayIsRead) {
  const auto options =
      parsed({"--parallel", "pp", "--places", "2", "--schedule", "gpipe", "--chunks", "5"}).options;
  EXPECT_EQ(options.parallel, Parallel::kPp);
  EXPECT_EQ(options.places, 2);
  EXPECT_EQ(options.pipeline.schedule, ScheduleKind::kGPipe);
  EXPECT_EQ(options.pipeline.chunks, 5);
  EXPECT_EQ(parsed({"--places", "2"}).options.parallel, Parallel::kDdp);
  EXPECT_EQ(
      parsed({"--parallel", "ddp+mp", "--checkpoint", "always"}, 4).options.pipeline.checkpoint,
      Checkpoint::kAlways);
  EXPECT_THAT(refusal({"--parallel", "ppp"}), HasSubstr("--parallel must be one of serial, dp"));
  EXPECT_THAT(
      refusal({"--parallel", "pp", "--balance", "luck"}),
      HasSubstr("--balance must be one of time, size, count: luck"));
}

TEST(TrainFlags, RanksMustBeThoseThatWereStarted) {
  EXPECT_EQ(refusal({"--nproc-per-node", "2"}, 2), "");
  EXPECT_EQ(refusal({"--nproc-per-node", "auto"}, 2), "");
  EXPECT_THAT(
      refusal({"--nproc-per-node", "4"}),
      HasSubstr("start them with: lockstep train --nproc-per-node 4"));
  for (const char* bad : {"0", "-1", "x", "1x", "99999999999"}) {
    EXPECT_THAT(refusal({"--nproc-per-node", bad}), HasSubstr("--nproc-per-node must be")) << bad;
  }
}

TEST(TrainFlags, HelpIsAskedForByFlag) {
  EXPECT_FALSE(parse_train_flags({"--model", "x", "--help"}, {}).has_value());
  EXPECT_FALSE(parse_train_flags({"-h"}, {}).has_value());
  EXPECT_THAT(train_help(), AllOf(HasSubstr("--batch-size"), HasSubstr("Examples:")));
}

}  // namespace
}  // namespace lockstep::cli
