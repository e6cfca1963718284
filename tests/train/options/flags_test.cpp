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
using ::testing::HasSubstr;
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
  EXPECT_THAT(refusal("--kernels mine"), HasSubstr("--kernels must be"));
}

TEST(TrainFlags, HelpListsEveryModel) {
  const std::string help = train_flags().spec("--model").help;
  for (const std::string& name : nn::model_names())
    EXPECT_THAT(", " + help + ",", HasSubstr(", " + name + ","));
}

TEST(TrainFlags, PatternsAreNotEmpty) {
  for (const char* text : {",", "a,,b", "a,"})
    EXPECT_THAT(refusal(concat("--freeze ", text)), HasSubstr("--freeze must be PATTERN"));
}

TEST(TrainFlags, EmptyValuesAreRefused) {
  for (const auto& flag : train_flags().flags()) {
    if (!flag.spec.takes_value()) continue;
    EXPECT_EQ(
        refusal(flag.spec.name + "="), concat("train: ", flag.spec.name, " must not be empty"));
  }
}

TEST(TrainFlags, UnderscoresAreDashesInNamesOnly) {
  const auto options = parsed("--batch_size=32 --max_steps 4 --output=a_b");
  EXPECT_EQ(options.batch_size, 32);
  EXPECT_EQ(options.limits.steps, 4);
  EXPECT_EQ(options.output, "a_b");
}

TEST(TrainFlags, LastOfTwoCounts) { EXPECT_EQ(parsed("--epochs 1 --epochs 2").limits.epochs, 2); }

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

TEST(TrainFlags, UnknownOnesAreAnsweredWithTheNearest) {
  EXPECT_EQ(refusal("--epoch 2"), "train: there is no flag --epoch; did you mean --epochs?");
  EXPECT_THAT(refusal("--bach-size=2"),
      AllOf(HasSubstr("there is no flag --bach-size"), HasSubstr("--batch-size")));
  EXPECT_THAT(refusal("surplus"), HasSubstr("there is no flag surplus"));
}

TEST(TrainFlags, WrongWordsNameTheFlagAndTheChoice) {
  EXPECT_THAT(refusal("--opt adma"), HasSubstr("--opt must be one of adam, sgd, adamw: adma"));
  EXPECT_THAT(refusal("--precision 64"),
      HasSubstr("--precision must be one of 32, bf16-mixed, 16-mixed, auto: 64"));
  EXPECT_THAT(refusal("--backend nccl"),
      HasSubstr("--backend must be one of auto, shm, gloo, hierarchical: nccl"));
  EXPECT_EQ(
      refusal("--epochs two"), "train: --epochs must be a whole number from 1 to 1000000: two");
  EXPECT_THAT(refusal("--epochs 1.5"), HasSubstr("--epochs must be a whole number"));
  EXPECT_THAT(refusal("--epochs 99999999999999999999"), HasSubstr("--epochs must be a whole"));
  EXPECT_EQ(refusal("--lr abc"), "train: --lr must be a number above 0: abc");
  EXPECT_THAT(refusal("--epochs"), HasSubstr("--epochs"));
  EXPECT_THAT(refusal("--max-time soon"), HasSubstr("soon"));
  EXPECT_THAT(refusal("--timeout 0.0001s"), HasSubstr("--timeout must be from 0.001s"));
  EXPECT_THAT(refusal("--data mnist:"), HasSubstr("no folder after the colon"));
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
  EXPECT_THAT(refusal("--parallel ppp"), HasSubstr("--parallel must be one of serial, dp"));
  EXPECT_THAT(refusal("--parallel pp --balance luck"),
      HasSubstr("--balance must be one of time, size, count: luck"));
}

// The user expects an effect.
TEST(TrainFlags, ThoseWithoutEffectAreRefused) {
  const std::vector<std::string> of_stages = {"--stages 2", "--stages-per-place 2", "--chunks 2",
      "--schedule gpipe", "--balance count", "--checkpoint always", "--deferred-batch-norm"};
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

}  // namespace
}  // namespace lockstep
