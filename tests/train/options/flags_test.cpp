#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "parsed_flags.h"

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parsed;
using testing::refusal;
using testing::words_of;

constexpr const char* kMany =
    "--model toy --data mnist:/d:x --repeat 2 --parallel ddp -b 64 --epochs 5 --max-steps 7 "
    "--max-time 1m30s --precision bf16-mixed --opt sgd --lr 0.5 --momentum 0.8 --weight-decay 1e-4 "
    "--lr-scale sqrt --output out --seed 7 --backend gloo --val-interval 0 --log-interval 1 "
    "--limit-train-batches 9 --progress none --resume never --nproc-per-node 2 --dry-run";

TEST(TrainFlags, NoneGiveTheDefaults) {
  const auto options = parsed("");
  EXPECT_EQ(options.model, "mnist-small");
  EXPECT_EQ(options.data.name, "fashion-mnist");
  EXPECT_EQ(options.parallel, Parallel::kSerial);
  EXPECT_EQ(options.batch_size, 128);
  EXPECT_EQ(options.limits.epochs, 3);
  EXPECT_EQ(options.seed, 42);
  EXPECT_EQ(options.output, "runs/19700101T000000Z-mnist-small-serial");
  EXPECT_EQ(parsed("", 2).parallel, Parallel::kDdp);
  EXPECT_TRUE(options.snapshots.rescue);
  EXPECT_FALSE(options.snapshots.required);
  // Flags that are off or absent stand in no file of options; TheFileOfOptionsIsTheOldOne has the
  // other defaults.
  TrainOptions usual;
  usual.output = options.output;
  EXPECT_EQ(config_toml(options), config_toml(usual));
}

// One that is given nothing, or a number that is none or beyond all use, says so in our words.
TEST(TrainFlags, M5L3NothingAndNumbersBeyondTheRangeAreRefused) {
  const auto refused = [](const FlagSpec& spec, const std::string& value) {
    return testing::message_of<InvalidArgument>([&] {
      cli::read_train_flags(train_flags().parse({"--model-ema", spec.name, value}), {});
    });
  };
  for (const auto& flag : train_flags().flags()) {
    const FlagSpec& spec = flag.spec;
    if (!spec.takes_value()) continue;
    EXPECT_EQ(refused(spec, ""), concat("train: ", spec.name, " must not be empty"));
    if (spec.kind == FlagSpec::Kind::kText || !flag.read) continue;
    const std::string start = concat("train: ", spec.name, " must be a ");
    for (const char* bad :
        {"abc", "99999999999999999999x", "nan", "inf", "1e999", "0x10", "-1e300"})
      EXPECT_THAT(refused(spec, bad), ::testing::StartsWith(start));
    if (spec.kind != FlagSpec::Kind::kWhole || spec.name == "--seed") continue;
    EXPECT_LE(spec.most, 1e12) << spec.name;
    for (const char* bad : {"-1", "99999999999999999999", "9223372036854775807", "1.5"})
      EXPECT_THAT(refused(spec, bad), ::testing::StartsWith(start));
  }
  EXPECT_EQ(
      refused(train_flags().spec("--lr"), "abc"), "train: --lr must be a number above 0: abc");
  EXPECT_EQ(refused(train_flags().spec("--max-time"), "1e300h"),
      "duration: more than 30 years: \"1e300h\"");
}

TEST(TrainFlags, L2ChunksAreNoMoreThanSamples) {
  EXPECT_THAT(refusal("--parallel pp --places 2 --chunks 9 -b 8"),
      HasSubstr("--chunks 9 is more than the 8 samples of a batch"));
  EXPECT_THAT(refusal("--parallel pp --places 2 --chunks 1000000000"),
      HasSubstr("--chunks must be a whole number from 1 to 10000"));
  EXPECT_EQ(parsed("--parallel pp --places 2 --chunks 8 -b 8").pipeline.chunks, 8);
  EXPECT_EQ(parsed("--parallel pp --places 2 -b 4").batch_size, 4) << "8 chunks are usual";
}

TEST(TrainFlags, AllAreRead) {
  const auto command = cli::parse_train_flags(
      words_of(kMany), {.world_size = 2, .local_world_size = 2, .unix_time = 0});
  const auto& options = command->options;
  EXPECT_TRUE(command->dry_run);
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

// What one flag writes, the flag itself reads.
TEST(TrainFlags, ReadWhatTheyWrite) {
  for (const std::string more : {"--snapshot-interval 10m --resume auto --keep 7 "
                                 "--snapshot-required --no-rescue --val-interval never",
           "--freeze a.*,b --augment timm --image-size 160 -j 3 --val-split 0.25 --bad-images skip",
           "--sched multistep --decay-milestones 3,5 --warmup-lr 0.25 --warmup-steps 4 --clip-grad "
           "1",
           "--opt adamw --momentum 0 --opt-eps 1e-6 --opt-betas 0.8,0.95",
           "--model-ema --model-ema-decay 0.99 --model-ema-warmup --resume runs/a --num-classes "
           "12"}) {
    const TrainOptions options = parsed(kMany + (" " + more), 2);
    std::vector<std::string> words;
    for (const auto& flag : train_flags().flags()) {
      if (!flag.write || flag.write(options) == FlagValue()) continue;
      words.push_back(flag.spec.name);
      if (flag.spec.takes_value()) words.push_back(text_of(flag.write(options)));
    }
    EXPECT_EQ(config_toml(parsed(words, 2)), config_toml(options)) << more;
  }
}

// As versions before the table of flags wrote it, but for the order. Those had LibTorch's
// kernels, without a word.
TEST(TrainFlags, TheFileOfOptionsIsTheOldOne) {
  const auto lines = [](const std::string& text) {
    const auto all = split(text, '\n');
    return std::set<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(lines(config_toml(parsed(concat(kMany, " --kernels libtorch"), 2))),
      lines("model = \"toy\"\ndata = \"mnist:/d:x\"\nrepeat = 2\naugment = \"none\"\n"
            "bad-images = \"fail\"\nval-split = 0.0\nparallel = \"ddp\"\nbackend = \"gloo\"\n"
            "batch-size = 64\nepochs = 5\nmax-steps = 7\nmax-time = \"90s\"\n"
            "limit-train-batches = 9\nprecision = \"bf16-mixed\"\nopt = \"sgd\"\nlr = 0.5\n"
            "momentum = 0.8\nweight-decay = 1e-04\nweight-decay-on = \"all\"\n"
            "lr-scale = \"sqrt\"\nsched = \"constant\"\ngrad-accum-steps = 1\nsmoothing = 0.0\n"
            "eval-metric = \"loss\"\nseed = 7\nval-interval = 0\nlog-interval = 1\n"
            "progress = \"none\"\noutput = \"out\"\nresume = \"never\"\n"
            "snapshot-overhead = \"1%\"\nkeep = 2\nsnapshot-copies = 0\n"));
}

TEST(TrainFlags, StartAndPrecisionAreRead) {
  const auto options =
      parsed("--pretrained w.pth --freeze features.*,classifier.0.* --precision 16-mixed");
  EXPECT_EQ(options.pretrained, "w.pth");
  EXPECT_EQ(options.freeze, (std::vector<std::string>{"features.*", "classifier.0.*"}));
  EXPECT_EQ(options.precision, Precision::k16Mixed);
  EXPECT_EQ(parsed("").freeze, std::vector<std::string>());
  EXPECT_TRUE(parsed("--precision auto").auto_precision);
  EXPECT_FALSE(parsed("--precision auto --precision 32").auto_precision);
}

TEST(TrainFlags, KernelsAreWrittenUnlessTheyAreLibTorchs) {
  EXPECT_EQ(parsed("").kernels, nn::Kernels::kAuto);
  EXPECT_THAT(config_toml(parsed("")), HasSubstr("kernels = \"auto\"\n"));
  EXPECT_THAT(config_toml(parsed("--kernels own")), HasSubstr("kernels = \"own\"\n"));
  EXPECT_THAT(config_toml(parsed("--kernels libtorch")), Not(HasSubstr("kernels")));
}

TEST(TrainFlags, HelpListsEveryModel) {
  const std::string help = train_flags().spec("--model").help;
  for (const std::string& name : nn::model_names())
    EXPECT_THAT(", " + help + ",", HasSubstr(", " + name + ","));
}

TEST(TrainFlags, AnotherLimitTakesThePlaceOfThreeEpochs) {
  EXPECT_FALSE(parsed("--max-steps 10").limits.epochs);
  EXPECT_FALSE(parsed("--max-time 10s").limits.epochs);
  EXPECT_EQ(parsed("--timeout 1m30s").timeout, 90);
}

TEST(TrainFlags, OptimizersHaveTheirOwnDefaults) {
  EXPECT_EQ(parsed("--opt sgd").optimizer.lr, 0.01);
  EXPECT_EQ(parsed("--lr 0.5 --opt sgd").optimizer.lr, 0.5) << "the order does not matter";
  EXPECT_EQ(parsed("--opt sgd").optimizer.momentum, 0.9);
  EXPECT_EQ(parsed("--opt adamw").optimizer.weight_decay, 0.01);
}

// With the nearest, where there is one. Numbers are refused above.
TEST(TrainFlags, WrongWordsNameTheFlagAndTheChoice) {
  const std::pair<const char*, const char*> rows[] = {
      {"--epoch 2", "train: there is no flag --epoch; did you mean --epochs?"},
      {"--bach-size=2", "there is no flag --bach-size"}, {"--bach-size=2", "--batch-size"},
      {"surplus", "there is no flag surplus"},
      {"--opt adma", "--opt must be one of adam, sgd, adamw: adma"},
      {"--precision 64", "--precision must be one of 32, bf16-mixed, 16-mixed, auto: 64"},
      {"--backend nccl", "--backend must be one of auto, shm, gloo, hierarchical: nccl"},
      {"--kernels mine", "--kernels must be"},
      {"--parallel ppp", "--parallel must be one of serial, dp"},
      {"--parallel pp --balance luck", "--balance must be one of time, size, count: luck"},
      {"--sched cosin", "--sched must be one of constant, step"},
      {"--sched cosin", "did you mean cosine"},
      {"--weight-decay-on bias", "--weight-decay-on must be one of"},
      {"--eval-metric top3", "--eval-metric must be one of"},
      {"--augment tim",
          "train: --augment must be one of none, crop-flip, timm: tim; did you mean timm?"},
      {"--bad-images hide", "--bad-images must be one of fail, skip"},
      {"--freeze ,", "--freeze must be PATTERN"}, {"--freeze a,,b", "--freeze must be PATTERN"},
      {"--freeze a,", "--freeze must be PATTERN"}, {"--epochs", "--epochs"},
      {"--resume=", "--resume"}, {"--max-time soon", "soon"},
      {"--timeout 0.0001s", "--timeout must be from 0.001s"},
      {"--data mnist:", "no folder after the colon"},
      {"--epochs two", "train: --epochs must be a whole number from 1 to 1000000: two"},
      {"--grad-accum-steps 0",
          "train: --grad-accum-steps must be a whole number from 1 to 1000000: 0"},
      {"--smoothing 1", "train: --smoothing must be a number of at least 0 and below 1: 1"},
      {"--val-split 1", "--val-split must be a number of at least 0 and below 1"},
      {"--image-size 0", "train: --image-size must be a whole number from 1 to 16384: 0"},
      {"--keep 0", "--keep must be a whole number from 1 to 1000000: 0"},
      {"--workers many", "train: --workers must be a whole number from 0 to 256, or auto: many"},
      {"--workers 257", "train: --workers must be a whole number from 0 to 256, or auto: 257"},
      {"--cache-decoded 2GB", ": --cache-decoded: bytes: must be an amount such as 2G"},
      {"--model-ema --model-ema-decay 1.5",
          "--model-ema-decay must be a number of at least 0 and below 1"},
      {"--model-ema-decay 0.9", "train: --model-ema-decay needs --model-ema"},
      {"--model-ema-warmup", "train: --model-ema-warmup needs --model-ema"},
      {"--sched plateau --val-interval 0", "--sched plateau needs evaluations"},
      {"--parallel mp --chunks 4", "--chunks and --schedule are for"},
      {"--places 2 --stages 2", "--stages and --stages-per-place cut a model"},
      {"--sched step", "needs --decay-epochs"}, {"--snapshot-interval often", "500steps"},
      {"--snapshot-interval 0steps", "500steps"}, {"--snapshot-overhead 0%", "1%"},
      {"--snapshot-overhead 1% --snapshot-interval 5s", "give one"}};
  for (const auto& [line, text] : rows) {
    const bool is_whole = std::string(text).starts_with("train: ");
    EXPECT_THAT(refusal(line), is_whole ? ::testing::Matcher<std::string>(text) : HasSubstr(text))
        << line;
  }
}

TEST(TrainFlags, EveryWayIsRead) {
  const auto options = parsed("--parallel pp --places 2 --schedule gpipe --chunks 5");
  EXPECT_EQ(options.parallel, Parallel::kPp);
  EXPECT_EQ(options.places, 2);
  EXPECT_EQ(options.pipeline.schedule, ScheduleKind::kGPipe);
  EXPECT_EQ(options.pipeline.chunks, 5);
  EXPECT_EQ(parsed("--places 2").parallel, Parallel::kDdp);
  EXPECT_EQ(
      parsed("--parallel ddp+mp --checkpoint always", 4).pipeline.checkpoint, Checkpoint::kAlways);
  const PipelineSettings some = parsed("--checkpoint layer1.*").pipeline;
  EXPECT_EQ(some.checkpoint, Checkpoint::kAlways);
  EXPECT_EQ(some.checkpoint_layers, "layer1.*");
}

// The user expects an effect.
TEST(TrainFlags, ThoseWithoutEffectAreRefused) {
  const std::vector<std::string> of_stages = {"--stages 2", "--stages-per-place 2", "--chunks 2",
      "--schedule gpipe", "--balance count", "--checkpoint except-last", "--deferred-batch-norm"};
  const std::vector<std::string> of_ddp = {
      "--sync-batch-norm", "--bucket-mb 1", "--comm-hook fp16", "--find-unused-parameters"};
  const auto refused = [](const std::string& way, const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      const std::string name = split(flag, ' ').front();
      EXPECT_THAT(refusal(way + flag), HasSubstr(name)) << way;
    }
  };
  for (const char* way : {"--parallel serial ", "--parallel dp ", "--parallel ddp --places 2 "})
    refused(way, of_stages);
  refused("--parallel dp ", {"--checkpoint always"});
  refused("--parallel ddp --places 2 --sync-batch-norm ", {"--checkpoint always"});
  EXPECT_NO_THROW(parsed("--parallel ddp --places 2 --checkpoint always"));
  for (const char* way : {"--parallel fsdp --places 2 ", "--parallel dp ", "--parallel pp "})
    refused(way, {"--checkpoint layer*"});
  for (const char* way : {"--parallel mp ", "--parallel ddp+mp "})
    refused(way, {"--chunks 2", "--schedule gpipe"});
  for (const char* way : {"--parallel serial ", "--parallel dp ", "--parallel mp ",
           "--parallel pp ", "--parallel ddp+mp ", "--parallel ddp+pp "})
    refused(way, of_ddp);
  for (const char* way :
      {"--parallel serial ", "--parallel dp ", "--parallel mp ", "--parallel pp "})
    refused(way, {"--shard-optimizer"});
  for (const char* way : {"--parallel serial ", "--parallel dp "}) refused(way, {"--backend shm"});
  refused("--opt sgd ", {"--weight-decay-on weights", "--opt-eps 1e-3", "--opt-betas 0.9,0.9"});
  refused("--opt adam ", {"--momentum 0.5", "--weight-decay-on weights"});
  refused("--loss mse ", {"--smoothing 0.1"});
  refused("", {"--sched-on-updates", "--min-lr 1e-6", "--warmup-lr 1e-6", "--decay-rate 0.5",
                  "--model-ema-decay 0.9"});
  refused("--val-interval never ", {"--eval-metric top1"});
  refused("--snapshot-interval never ", {"--keep 3", "--snapshot-required", "--snapshot-copies 2"});
  refused("--dry-run ", {"--json"});
  EXPECT_NO_THROW(parsed("--sched-on-updates --warmup-epochs 1"));
  EXPECT_EQ(refusal("--parallel pp --comm-hook bf16"),
      "train: --bucket-mb, --comm-hook and --find-unused-parameters are for --parallel ddp, not "
      "for "
      "pp");
  EXPECT_EQ(refusal("--smoothing 0.1 --loss mse"),
      "train: --smoothing is for --loss cross-entropy, not for mse");
  EXPECT_EQ(parsed("--smoothing 0.1 --loss cross-entropy").smoothing, 0.1);
}

TEST(TrainFlags, RanksMustBeThoseThatWereStarted) {
  EXPECT_NO_THROW(parsed("--nproc-per-node 2", 2));
  EXPECT_NO_THROW(parsed("--nproc-per-node auto", 2));
  EXPECT_THAT(refusal("--nproc-per-node 4"),
      HasSubstr("start them with: lockstep train --nproc-per-node 4"));
  for (const char* bad : {"0", "-1", "x", "1x", "99999999999"})
    EXPECT_THAT(refusal(concat("--nproc-per-node ", bad)), HasSubstr("--nproc-per-node must be"));
}

TEST(TrainFlags, HelpIsAskedForByFlag) {
  EXPECT_FALSE(cli::parse_train_flags({"--model", "x", "--help"}, {}).has_value());
  EXPECT_FALSE(cli::parse_train_flags({"-h"}, {}).has_value());
  EXPECT_THAT(cli::train_help(),
      AllOf(HasSubstr("-b,--batch-size N               samples per step on each replica [128]\n"),
          HasSubstr("adam, sgd, adamw [adam]\n"), HasSubstr("Examples:")));
}

TEST(LearningFlags, SchedulesAreRead) {
  const LrSettings cosine =
      parsed("--sched cosine --warmup-epochs 1 --warmup-lr 0.0001 --min-lr 1e-6 --sched-on-updates")
          .optimizer.schedule;
  EXPECT_EQ(cosine.kind, LrScheduleKind::kCosine);
  EXPECT_EQ(cosine.warmup_epochs, 1);
  EXPECT_EQ(cosine.warmup_lr, 0.0001);
  EXPECT_EQ(cosine.min_lr, 1e-6);
  EXPECT_TRUE(cosine.on_updates);
  const LrSettings several =
      parsed("--sched multistep --decay-milestones 30,60,90 --decay-rate 0.2").optimizer.schedule;
  EXPECT_THAT(several.decay_milestones, ElementsAre(30, 60, 90));
  EXPECT_EQ(several.decay_rate, 0.2);
  const LrSettings step =
      parsed("--sched step --decay-epochs 4 --warmup-steps 9").optimizer.schedule;
  EXPECT_EQ(step.decay_epochs, 4);
  EXPECT_EQ(step.warmup_steps, 9);
  EXPECT_EQ(parsed("--sched poly --poly-power 0.5").optimizer.schedule.power, 0.5);
}

TEST(LearningFlags, OneCycleAndPlateauAreRead) {
  const LrSettings cycle =
      parsed("--sched onecycle --pct-start 0.4 --div-factor 10 --final-div-factor 100")
          .optimizer.schedule;
  EXPECT_EQ(cycle.pct_start, 0.4);
  EXPECT_EQ(cycle.div_factor, 10);
  EXPECT_EQ(cycle.final_div_factor, 100);
  const LrSettings plateau =
      parsed("--sched plateau --patience-epochs 3 --cooldown-epochs 2").optimizer.schedule;
  EXPECT_EQ(plateau.patience_epochs, 3);
  EXPECT_EQ(plateau.cooldown_epochs, 2);
}

TEST(LearningFlags, TheRestIsRead) {
  const TrainOptions options = parsed(
      "--weight-decay 0.1 --weight-decay-on weights --grad-accum-steps 4 --smoothing 0.1 "
      "--model-ema "
      "--model-ema-decay 0.99 --model-ema-warmup --eval-metric top5");
  EXPECT_EQ(options.optimizer.weight_decay_on, DecayOn::kWeights);
  EXPECT_EQ(options.grad_accum_steps, 4);
  EXPECT_EQ(options.smoothing, 0.1);
  ASSERT_TRUE(options.ema);
  EXPECT_EQ(options.ema->decay, 0.99);
  EXPECT_TRUE(options.ema->warmup);
  EXPECT_EQ(options.eval_metric, "top5");
  EXPECT_EQ(parsed("--model-ema").ema->decay, 0.9998);
}

TEST(LearningFlags, EpsilonAndBetasAreRead) {
  const auto none = parsed("--opt adamw").optimizer;
  EXPECT_FALSE(none.eps);
  EXPECT_FALSE(none.betas);
  const auto given = parsed("--opt-betas 0,0.95 --opt-eps 1e-6 --opt adamw").optimizer;
  EXPECT_EQ(given.eps, 1e-6);
  ASSERT_TRUE(given.betas);
  EXPECT_EQ(given.betas->first, 0);
  EXPECT_EQ(given.betas->second, 0.95);
  EXPECT_EQ(given.weight_decay, 0.01) << "adamw's own stays";
}

TEST(LearningFlags, WrongEpsilonsAndBetasAreRefused) {
  for (const char* eps : {"0", "-1e-08"})
    EXPECT_EQ(refusal(concat("--opt-eps ", eps)),
        concat("train: --opt-eps must be a number above 0: ", eps));
  for (const char* betas : {"0.9", "0.9,", "0.9,0.99,0.999", "a,0.9", "0.9;0.99"})
    EXPECT_EQ(refusal(concat("--opt-betas ", betas)),
        concat("train: --opt-betas must be two numbers, such as 0.9,0.999: ", betas));
  for (const char* betas : {"1,0.999", "0.9,1", "-0.1,0.999", "0.9,-0.1", "nan,0.9", "0.9,inf"})
    EXPECT_THAT(refusal(concat("--opt-betas ", betas)), HasSubstr("--opt-betas must be")) << betas;
  EXPECT_EQ(refusal("--opt-betas 0.9,1.5"),
      "train: --opt-betas must be numbers of at least 0 and below 1: 1.5");
  EXPECT_EQ(refusal("--opt sgd --opt-eps 1e-8"),
      "train: --opt-eps is for --opt adam and adamw; it is sgd");
  EXPECT_EQ(refusal("--opt sgd --opt-betas 0.9,0.999"),
      "train: --opt-betas is for --opt adam and adamw; it is sgd");
}

TEST(LearningFlags, MilestonesMustBeAListOfEpochs) {
  for (const char* text : {"30,", ",30", "30;60", "a", "30,,60", "99999999999999999999", "3_4"})
    EXPECT_THAT(refusal(concat("--sched multistep --decay-milestones ", text)),
        HasSubstr("--decay-milestones must be a comma-separated list of epochs"))
        << text;
}

TEST(LearningFlags, StandInTheRunsConfiguration) {
  const std::string toml =
      config_toml(parsed("--sched multistep --decay-milestones 3,5 --warmup-epochs 2 --smoothing "
                         "0.1 --model-ema --grad-accum-steps 2"));
  EXPECT_THAT(
      toml, AllOf(HasSubstr("sched = \"multistep\"\n"), HasSubstr("decay-milestones = \"3,5\"\n"),
                HasSubstr("warmup-epochs = 2\n"), HasSubstr("weight-decay-on = \"all\"\n"),
                HasSubstr("smoothing = 0.1\n"), HasSubstr("grad-accum-steps = 2\n"),
                HasSubstr("model-ema = true\nmodel-ema-decay = 0.9998\n"),
                HasSubstr("eval-metric = \"loss\"\n"), Not(HasSubstr("min-lr")),
                Not(HasSubstr("model-ema-warmup")), Not(HasSubstr("opt-eps")),
                Not(HasSubstr("opt-betas"))));
  EXPECT_THAT(config_toml(parsed("--opt-eps 1e-6 --opt-betas 0.8,0.95")),
      AllOf(HasSubstr("opt-eps = 1e-06\n"), HasSubstr("opt-betas = \"0.8,0.95\"\n")));
}

TEST(GradientFlags, AreReadAndWritten) {
  EXPECT_FALSE(parsed("").gradients.bucket_mb);
  EXPECT_EQ(parsed("").gradients.comm_hook.kind, CommHookKind::kNone);
  for (const std::string hook : {"fp16", "bf16", "powersgd:3:20"}) {
    const TrainOptions options = parsed("--bucket-mb 0.5 --parallel ddp --comm-hook " + hook);
    EXPECT_EQ(options.gradients.bucket_mb, 0.5);
    EXPECT_EQ(comm_hook_text(options.gradients.comm_hook), hook);
    EXPECT_THAT(config_toml(options), HasSubstr("comm-hook = \"" + hook + "\"\n"));
  }
  EXPECT_EQ(comm_hook_text(parse_comm_hook("powersgd")), "powersgd:1:1000");
  EXPECT_EQ(comm_hook_text(parse_comm_hook("powersgd:2")), "powersgd:2:1000");
}

TEST(GradientFlags, WhatTheyDoNotTakeIsRefused) {
  const auto refused = [](const std::string& flags) { return refusal("--parallel ddp " + flags); };
  EXPECT_EQ(refused("--comm-hook fp61"),
      "train: --comm-hook must be one of none, fp16, bf16, powersgd, powersgd:RANK, "
      "powersgd:RANK:STEP: fp61; did you mean fp16?");
  EXPECT_THAT(refused("--comm-hook bf16:2"), HasSubstr("must be one of"));
  EXPECT_THAT(refused("--comm-hook powersgd:1:2:3"), HasSubstr("must be one of"));
  for (const std::string numbers : {"0", "x", "", "1:-1", "99999999999"})
    EXPECT_THAT(refused("--comm-hook powersgd:" + numbers), HasSubstr("has whole numbers"));
  EXPECT_THAT(refused("--bucket-mb 0"), HasSubstr("--bucket-mb must be a number above 0"));
}

LoadingSettings loading_of(const std::string& line) { return parsed(line).loading; }

TEST(LoadingFlags, AreRead) {
  const LoadingSettings settings =
      loading_of("--augment timm --image_size 160 -j 3 --bad-images skip --val-split 0.25");
  EXPECT_EQ(settings.augment, Augment::kTimm);
  EXPECT_EQ(settings.image_size, 160);
  EXPECT_EQ(settings.workers, 3);
  EXPECT_EQ(settings.bad_images, BadImages::kSkip);
  EXPECT_EQ(settings.val_split, 0.25);
  EXPECT_EQ(loading_of("--cache-decoded 1.5G").cache_decoded, 3 * (std::int64_t{1} << 29));
  EXPECT_EQ(loading_of("--augment=crop-flip").augment, Augment::kCropFlip);
  EXPECT_EQ(loading_of("--workers auto").workers, std::nullopt);
}

TEST(Workers, AreAsManyAsAskedOrHalfOfTheCores) {
  EXPECT_EQ(workers_of({.workers = 5}, 1, true), 5);
  EXPECT_EQ(workers_of({.workers = 0}, 16, false), 0);
  EXPECT_EQ(workers_of({}, 16, true), 0);
  EXPECT_EQ(workers_of({}, 1, false), 0);
  EXPECT_EQ(workers_of({}, 2, false), 1);
  EXPECT_EQ(workers_of({}, 9, false), 4);
  EXPECT_EQ(workers_of({}, 64, false), 8);
}

TEST(SnapshotFlags, SayWhenToSave) {
  const auto interval = [](const char* text) {
    return parsed(concat("--snapshot-interval ", text)).snapshots;
  };
  EXPECT_EQ(interval("500steps").unit, SnapshotUnit::kSteps);
  EXPECT_EQ(interval("500steps").count, 500);
  EXPECT_EQ(interval("2epochs").unit, SnapshotUnit::kEpochs);
  EXPECT_EQ(interval("10m").unit, SnapshotUnit::kSeconds);
  EXPECT_EQ(interval("10m").count, 600);
  EXPECT_EQ(interval("none").unit, SnapshotUnit::kNone);
  const auto more =
      parsed("--snapshot-overhead 0.5% --keep 7 --snapshot-required --no-rescue").snapshots;
  EXPECT_FALSE(more.rescue);
  EXPECT_EQ(more.count, 0.005);
  EXPECT_EQ(more.keep, 7);
  EXPECT_TRUE(more.required);
}

TEST(SnapshotFlags, RanksThatWereStartedAgainAlwaysGoOn) {
  EXPECT_EQ(parsed("--resume auto").resume.kind, Resume::kAuto);
  EXPECT_EQ(parsed("", 1, 1).resume.kind, Resume::kAuto);
  EXPECT_EQ(parsed("--resume never", 1, 1).resume.kind, Resume::kAuto);
  const ResumeSettings named = parsed("--resume runs/a", 1, 2).resume;
  EXPECT_EQ(named.kind, Resume::kFrom);
  EXPECT_EQ(named.from, "runs/a");
  EXPECT_TRUE(named.again);
}

TEST(SnapshotFlags, AreInTheConfigurationAsTheyCanBeGiven) {
  EXPECT_THAT(config_toml(parsed("--snapshot-interval 500steps --keep 3 --resume auto")),
      AllOf(HasSubstr("snapshot-interval = \"500steps\"\n"), HasSubstr("keep = 3\n"),
          HasSubstr("resume = \"auto\"\n")));
  EXPECT_THAT(config_toml(parsed("")), HasSubstr("snapshot-overhead = \"1%\"\n"));
}

}  // namespace
}  // namespace lockstep
