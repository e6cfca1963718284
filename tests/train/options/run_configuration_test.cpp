#include "lockstep/train/options/run_configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsed_flags.h"

#include "lockstep/train/options/train_flags.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Each value by its flag, without the checks of values against each other.
TrainOptions with(const std::string& flags) {
  TrainOptions options;
  train_flags().read(options, train_flags().parse(testing::words_of(flags)));
  return options;
}

std::vector<std::string> after(const std::string& flags) {
  return differences(run_configuration(TrainOptions{}), run_configuration(with(flags)));
}

TEST(RunConfiguration, WhatDecidesTheTrainingMustAgree) {
  EXPECT_THAT(after("--batch-size 32"), ElementsAre("--batch-size: the snapshot has 128, now 32"));
  EXPECT_THAT(after("--model toy --lr 0.5"),
      ElementsAre("--model: the snapshot has \"mnist-small\", now \"toy\"",
          "--lr: the snapshot has 0.001, now 0.5"));
  for (const std::string flag :
      {"--freeze a", "--data mnist", "--repeat 2", "--num-classes 11", "--augment crop-flip",
          "--image-size 32", "--val-split 0.1", "--sync-batch-norm", "--precision bf16-mixed",
          "--opt sgd", "--momentum 0.5", "--weight-decay 0.5", "--opt-eps 1e-6",
          "--opt-betas 0.8,0.999", "--clip-grad 1", "--sched cosine", "--warmup-epochs 1",
          "--grad-accum-steps 2", "--task tokens", "--loss mse", "--smoothing 0.1", "--model-ema",
          "--eval-metric top1", "--seed 43", "--limit-train-batches 5"})
    EXPECT_THAT(
        after(flag), Contains(StartsWith(flag.substr(0, flag.find(' ')) + ": the snapshot has ")));
}

// Whatever task the data say: it is the usual loss of all that have it.
TEST(RunConfiguration, CrossEntropyIsTheSameAsNoLoss) {
  EXPECT_THAT(after("--loss cross-entropy"), ::testing::IsEmpty());
}

TEST(RunConfiguration, WhereAndHowLongMayDiffer) {
  for (const char* flags :
      {"--data fashion-mnist:/elsewhere", "--pretrained w.pth", "--parallel ddp", "--places 2",
          "--chunks 2", "--shard-optimizer", "--backend gloo", "--timeout 7s",
          "--epochs 9 --max-steps 5 --max-time 60s", "--workers 3", "--val-interval 2",
          "--log-interval 1", "--output out", "--keep 9", "--no-rescue", "--resume auto"})
    EXPECT_THAT(after(flags), IsEmpty()) << flags;
}

TEST(RunConfiguration, TheSameValueInAnotherFormIsNoDifference) {
  EXPECT_THAT(differences({{"lr", "1e-05"}, {"model", "\"a\\\\b\\u000A\""}, {"seed", "42"}},
                  {{"lr", "0.00001"}, {"model", "\"a\\\\b\\n\""}, {"seed", "42"}}),
      IsEmpty());
  EXPECT_THAT(differences({{"lr", "1.0"}}, {{"lr", "1"}}), ::testing::SizeIs(1));
}

TEST(RunConfiguration, WhatOneSideLacksIsADifference) {
  EXPECT_THAT(differences({{"clip-grad", "1.0"}}, {{"smoothing", "0.1"}}),
      ElementsAre("--smoothing: the snapshot has no value, now 0.1",
          "--clip-grad: the snapshot has 1.0, now no value"));
}

TEST(RunConfiguration, ConfigTomlReadsBackAsWhatBeganTheRun) {
  TrainOptions options;
  options.data = {.name = "mnist", .directory = "/a \"b\""};
  options.freeze = {"a.*", "b"};
  options.optimizer.lr = 1e-5;
  options.optimizer.clip_grad = 1;
  options.optimizer.eps = 1e-6;
  options.optimizer.betas = AdamBetas{.first = 0.8};
  options.ema = EmaSettings{};
  options.limits.steps = 7;
  const auto before = parse_configuration(config_toml(options), "config.toml");
  EXPECT_THAT(differences(before, begun_configuration(options)), IsEmpty());
  EXPECT_EQ(value_in(before, "max-steps"), "no value") << "it may change";
  options.data.directory = "/c";
  options.smoothing = 0.1;
  EXPECT_THAT(differences(before, begun_configuration(options), "config.toml"),
      ElementsAre("--data: config.toml has \"mnist:/a \\\"b\\\"\", now \"mnist:/c\"",
          "--smoothing: config.toml has 0.0, now 0.1"));
  EXPECT_THAT(parse_configuration("unknown = 3\n", "f"), IsEmpty());
  EXPECT_THROW(parse_configuration("lr = = 3", "f"), DataError);
}

TEST(RunConfiguration, OptionsAreReadBackFromConfigToml) {
  TrainOptions options;
  options.data = {.name = "mnist", .directory = "/a \"b\":c"};
  options.freeze = {"a.*", "b"};
  options.loading.val_split = 0.25;
  options.loading.workers = 3;
  options.optimizer = default_settings(OptimizerKind::kAdamW);
  options.optimizer.lr = 1e-5;
  options.optimizer.betas = AdamBetas{.first = 0.8};
  options.ema = EmaSettings{.decay = 0.5, .warmup = true};
  options.limits = {.epochs = 2, .steps = 7, .seconds = 90};
  options.val_interval = -1;
  options.sync_batch_norm = true;
  const TrainOptions found = recorded_options(config_toml(options), "config.toml");
  EXPECT_EQ(config_toml(found), config_toml(options));
  EXPECT_EQ(found.data.directory, "/a \"b\":c");
  EXPECT_TRUE(found.sync_batch_norm);
}

TEST(RunConfiguration, ARunThatSaysNothingOfKernelsHadLibTorchs) {
  EXPECT_EQ(recorded_options("model = \"toy\"\n", "f").kernels, nn::Kernels::kLibTorch);
  EXPECT_EQ(recorded_options("kernels = \"own\"\n", "f").kernels, nn::Kernels::kOwn);
}

TEST(RunConfiguration, WhatNoFlagTakesIsDamagedData) {
  EXPECT_EQ(recorded_options("of-later = 3\nseed = 5\n", "f").seed, 5);
  for (const char* text : {"seed = = 3", "seed = -1", "precision = \"17\"", "batch-size = 0"})
    EXPECT_THAT(testing::message_of<DataError>([&] { recorded_options(text, "F.toml"); }),
        StartsWith("F.toml: "))
        << text;
}

TEST(SharedConfiguration, HasAllButWhatEachRankMayHaveOfItsOwn) {
  const auto ranks_agree_after = [](const std::string& flags) {
    return shared_configuration(TrainOptions{}) == shared_configuration(with(flags));
  };
  for (const char* flags :
      {"--batch-size 64", "--seed 1", "--lr 0.5", "--precision auto", "--precision bf16-mixed",
          "--pretrained w.pth", "--parallel pp", "--epochs 9", "--val-interval 2",
          "--log-interval 1", "--snapshot-required", "--resume auto", "--overwrite"})
    EXPECT_FALSE(ranks_agree_after(flags)) << flags;
  for (const char* flags : {"--output runs/20260101T000001Z-toy-ddp",
           "--data fashion-mnist:/elsewhere", "--workers 3", "--progress none"})
    EXPECT_TRUE(ranks_agree_after(flags)) << flags;
}

// Each flag with its value, so that the line can be given again.
TEST(UnusualFlags, HaveValues) {
  TrainOptions options;
  options.kernels = nn::Kernels::kLibTorch;
  options.limits = {.steps = 5};
  const std::string flags = unusual_flags(options);
  EXPECT_THAT(flags, ::testing::HasSubstr("--kernels libtorch"));
  EXPECT_THAT(flags, ::testing::HasSubstr("--max-steps 5"));
  EXPECT_THAT(flags, ::testing::Not(::testing::HasSubstr("--epochs")));
  EXPECT_THAT(flags, ::testing::Not(::testing::HasSubstr("  ")));
}

TEST(SharedConfiguration, OfPathsItCountsThatTheyAreGiven) {
  TrainOptions here, there;
  here.pretrained = "/here/w.pth";
  there.pretrained = "/there/w.pth";
  EXPECT_EQ(shared_configuration(here), shared_configuration(there));
  EXPECT_EQ(value_in(shared_configuration(here), "--pretrained"), "\"given\"");
}

}  // namespace
}  // namespace lockstep
