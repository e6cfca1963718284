#include "lockstep/train/options/run_configuration.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Change = std::function<void(TrainOptions&)>;

struct NamedChange {
  const char* name;
  Change change;
};

std::vector<std::string> after(const Change& change) {
  TrainOptions now;
  change(now);
  return differences(run_configuration(TrainOptions{}), run_configuration(now));
}

TEST(RunConfiguration, WhatDecidesTheTrainingMustAgree) {
  EXPECT_THAT(after([](auto& options) { options.batch_size = 32; }),
      ElementsAre("--batch-size: the snapshot has 128, now 32"));
  EXPECT_THAT(after([](auto& options) {
    options.model = "toy";
    options.optimizer.lr = 0.5;
  }),
      ElementsAre("--model: the snapshot has \"mnist-small\", now \"toy\"",
          "--lr: the snapshot has 0.001, now 0.5"));
  const NamedChange changes[] = {{"freeze", [](auto& options) { options.freeze = {"a"}; }},
      {"data.name", [](auto& options) { options.data.name = "mnist"; }},
      {"repeat", [](auto& options) { options.repeat = 2; }},
      {"classes", [](auto& options) { options.classes = 11; }},
      {"augment", [](auto& options) { options.loading.augment = Augment::kCropFlip; }},
      {"image_size", [](auto& options) { options.loading.image_size = 32; }},
      {"val_split", [](auto& options) { options.loading.val_split = 0.1; }},
      {"sync_batch_norm", [](auto& options) { options.sync_batch_norm = true; }},
      {"precision", [](auto& options) { options.precision = Precision::kBf16Mixed; }},
      {"optimizer.kind", [](auto& options) { options.optimizer.kind = OptimizerKind::kSgd; }},
      {"momentum", [](auto& options) { options.optimizer.momentum = 0.5; }},
      {"weight_decay", [](auto& options) { options.optimizer.weight_decay = 0.5; }},
      {"eps", [](auto& options) { options.optimizer.eps = 1e-6; }},
      {"betas", [](auto& options) { options.optimizer.betas = AdamBetas{.first = 0.8}; }},
      {"clip_grad", [](auto& options) { options.optimizer.clip_grad = 1; }},
      {"schedule.kind",
          [](auto& options) { options.optimizer.schedule.kind = LrScheduleKind::kCosine; }},
      {"warmup_epochs", [](auto& options) { options.optimizer.schedule.warmup_epochs = 1; }},
      {"grad_accum_steps", [](auto& options) { options.grad_accum_steps = 2; }},
      {"loss", [](auto& options) { options.loss = "mse"; }},
      {"smoothing", [](auto& options) { options.smoothing = 0.1; }},
      {"ema", [](auto& options) { options.ema = EmaSettings{}; }},
      {"eval_metric", [](auto& options) { options.eval_metric = EvalMetric::kTop1; }},
      {"seed", [](auto& options) { options.seed = 43; }},
      {"limit_train_batches", [](auto& options) { options.limit_train_batches = 5; }}};
  for (const auto& [name, change] : changes)
    EXPECT_THAT(after(change), ::testing::Not(IsEmpty())) << name;
}

TEST(RunConfiguration, WhereAndHowLongMayDiffer) {
  const NamedChange changes[] = {
      {"data.directory", [](auto& options) { options.data.directory = "/elsewhere"; }},
      {"pretrained", [](auto& options) { options.pretrained = "w.pth"; }},
      {"parallel", [](auto& options) { options.parallel = Parallel::kDdp; }},
      {"places", [](auto& options) { options.places = 2; }},
      {"pipeline.chunks", [](auto& options) { options.pipeline.chunks = 2; }},
      {"sharded", [](auto& options) { options.optimizer.sharded = true; }},
      {"backend", [](auto& options) { options.backend = "gloo"; }},
      {"timeout", [](auto& options) { options.timeout = 7; }},
      {"limits", [](auto& options) { options.limits = {.epochs = 9, .steps = 5, .seconds = 60}; }},
      {"workers", [](auto& options) { options.loading.workers = 3; }},
      {"val_interval", [](auto& options) { options.val_interval = 2; }},
      {"log_interval", [](auto& options) { options.log_interval = 1; }},
      {"output", [](auto& options) { options.output = "out"; }},
      {"snapshots.keep", [](auto& options) { options.snapshots.keep = 9; }},
      {"snapshots.rescue", [](auto& options) { options.snapshots.rescue = false; }},
      {"resume.kind", [](auto& options) { options.resume.kind = Resume::kAuto; }}};
  for (const auto& [name, change] : changes) EXPECT_THAT(after(change), IsEmpty()) << name;
}

// Versions before this one wrote strings and numbers in their own way.
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
        ::testing::StartsWith("F.toml: "))
        << text;
}

bool ranks_agree_after(const Change& change) {
  TrainOptions other;
  change(other);
  return shared_configuration(TrainOptions{}) == shared_configuration(other);
}

TEST(SharedConfiguration, HasAllButWhatEachRankMayHaveOfItsOwn) {
  const NamedChange shared[] = {{"batch_size", [](auto& options) { options.batch_size = 64; }},
      {"seed", [](auto& options) { options.seed = 1; }},
      {"lr", [](auto& options) { options.optimizer.lr = 0.5; }},
      {"auto_precision", [](auto& options) { options.auto_precision = true; }},
      {"precision", [](auto& options) { options.precision = Precision::kBf16Mixed; }},
      {"pretrained", [](auto& options) { options.pretrained = "w.pth"; }},
      {"parallel", [](auto& options) { options.parallel = Parallel::kPp; }},
      {"limits.epochs", [](auto& options) { options.limits.epochs = 9; }},
      {"val_interval", [](auto& options) { options.val_interval = 2; }},
      {"log_interval", [](auto& options) { options.log_interval = 1; }},
      {"snapshots.required", [](auto& options) { options.snapshots.required = true; }},
      {"resume.kind", [](auto& options) { options.resume.kind = Resume::kAuto; }},
      {"resume.overwrite", [](auto& options) { options.resume.overwrite = true; }}};
  for (const auto& [name, change] : shared) EXPECT_FALSE(ranks_agree_after(change)) << name;
  const NamedChange own[] = {
      {"output", [](auto& options) { options.output = "runs/20260101T000001Z-toy-ddp"; }},
      {"data.directory", [](auto& options) { options.data.directory = "/elsewhere"; }},
      {"workers", [](auto& options) { options.loading.workers = 3; }},
      {"progress", [](auto& options) { options.progress = ProgressStyle::kNone; }}};
  for (const auto& [name, change] : own) EXPECT_TRUE(ranks_agree_after(change)) << name;
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
