#include "bench/cli/plan/plan_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal_of(const std::vector<std::string>& arguments) {
  return testing::message_of<InvalidArgument>([&] { parse_plan(arguments); });
}

TEST(PlanFlags, MeasureHalvesOfTheBatchUnlessOthersAreNamed) {
  EXPECT_THAT(parse_plan({"--batch", "64"})->batches, ElementsAre(64, 32, 16, 8, 4));
  EXPECT_THAT(parse_plan({"--batch", "3"})->batches, ElementsAre(3, 1));
  EXPECT_THAT(parse_plan({"--measure-batches", "7,5"})->batches, ElementsAre(7, 5));
}

TEST(PlanFlags, LimitMeasuringUnlessBatchesAreNamed) {
  EXPECT_EQ(parse_plan({})->measure_minutes, 4);
  EXPECT_EQ(parse_plan({"--measure-batches", "8,4"})->measure_minutes, 0);
  EXPECT_EQ(parse_plan({"--measure-batches", "8,4", "--measure-minutes", "2"})->measure_minutes, 2);
}

TEST(PlanFlags, NameAPeerAndHowLongItKeepsItsLock) {
  const auto settings = [](const char* peer) {
    return parse_plan({"--peer", peer})->question.ways.settings;
  };
  EXPECT_TRUE(settings("pytorch-dp").is_pytorch);
  EXPECT_EQ(settings("pytorch-dp").lock_seconds, 0);
  EXPECT_DOUBLE_EQ(settings("pytorch-dp,0.02s").lock_seconds, 0.02);
  EXPECT_THAT(refusal_of({"--peer", "pytorch-ddp"}), HasSubstr("must be pytorch-dp"));
  EXPECT_THAT(refusal_of({"--peer", "pytorch-dp,0s"}), HasSubstr("not a time span above zero"));
  EXPECT_THAT(refusal_of({"--peer", "pytorch-dp", "--ways", "ddp"}), HasSubstr("is for dp"));
  EXPECT_THAT(refusal_of({"--peer", "pytorch-dp", "--confirm", "2"}), HasSubstr("--confirm"));
}

// Whatever is measured is measured for the question and its changes.
TEST(PlanFlags, AskWithAPriceWhereDevicesHaveOne) {
  const auto command = parse_plan({"--model", "net.pt2", "--device", "T4", "--price", "T4=0.53",
      "--samples", "1000", "--budget", "5", "--what-if", "places=4"});
  EXPECT_NO_THROW(plan::changed(command->question, command->scenarios.at(0)));
}

TEST(PlanFlags, NameAFileOfItsOwnForTheProfileOfEachModel) {
  EXPECT_EQ(parse_plan({"--measure", "--model", "resnet18"})->save, "plan-resnet18.json");
  EXPECT_EQ(parse_plan({"--measure", "--model", "nets/net.pt2"})->save, "plan-net.json");
}

TEST(PlanFlags, SayForWhichMachines) {
  const auto command =
      parse_plan({"--nodes", "1,2", "--places", "4", "--link", "25Gbit,50us", "--within",
          "12GB,5us", "--made-hosts", "--memory", "16G", "--price", "3.06", "--samples", "50000"});
  EXPECT_THAT(command->question.nodes, ElementsAre(1, 2));
  EXPECT_THAT(command->question.places, ElementsAre(4));
  EXPECT_DOUBLE_EQ(command->question.machine.between.bytes_per_second, 25e9 / 8);
  EXPECT_EQ(command->within, "12GB,5us");
  EXPECT_DOUBLE_EQ(command->question.machine.memory_bytes, 16.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(command->question.machine.price, 3.06);
  EXPECT_DOUBLE_EQ(command->question.samples, 50000);
  EXPECT_TRUE(command->question.machine.is_one_machine);
  const plan::Link link = parse_plan({"--link", "1Gbit"})->question.machine.between;
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 1e9 / 8);
  EXPECT_DOUBLE_EQ(link.latency, 50e-6) << "the usual one";
}

TEST(PlanFlags, SayWhatFailsAndHowGradientsGo) {
  const auto command =
      parse_plan({"--mtbf", "24", "--snapshot-seconds", "10", "--comm-hook", "bf16",
          "--shard-optimizer", "--grad-accum-steps", "2", "--checkpoint", "always", "--bucket-mb",
          "1", "--replicas", "2", "--what-if", "link=100Gbit", "--what-if", "places=8,batch=512"});
  EXPECT_EQ(command->question.failures.between, 24 * 3600);
  EXPECT_EQ(command->question.failures.snapshot, 10);
  const plan::Way& settings = command->question.ways.settings;
  EXPECT_EQ(settings.sent_as, plan::SentAs::kBf16);
  EXPECT_TRUE(settings.is_sharded);
  EXPECT_EQ(settings.accumulated, 2);
  EXPECT_EQ(settings.checkpoint, Checkpoint::kAlways);
  EXPECT_EQ(settings.bucket_bytes, std::size_t{1} << 20);
  EXPECT_EQ(settings.copies, 2);
  EXPECT_THAT(command->scenarios, ElementsAre("link=100Gbit", "places=8,batch=512"));
}

TEST(PlanFlags, TakeOverTheTrainingThatFollows) {
  const auto command = parse_plan({"--train", "--", "--model", "resnet18", "--image-size", "32",
      "--batch-size", "24", "--places", "3", "--epochs", "7", "--output", "runs/x"});
  EXPECT_EQ(command->model, "resnet18");
  EXPECT_EQ(command->question.batch, 24);
  EXPECT_THAT(command->question.places, ElementsAre(1, 2, 3));
  EXPECT_THAT(command->train_flags, ElementsAre("--image-size", "32"));
  EXPECT_THAT(command->training, ElementsAre("--model", "resnet18", "--image-size", "32",
                                     "--epochs", "7", "--output", "runs/x"));
  EXPECT_GE(command->confirmed, 2);
}

TEST(PlanFlags, LeaveShardsOutOfATrainingThatNamesNoWays) {
  const auto kinds = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--train", "--", "--model", "resnet18"});
    return parse_plan(words)->question.ways.kinds;
  };
  EXPECT_THAT(kinds({}), ElementsAre("serial", "dp", "ddp", "mp", "pp", "ddp+mp", "ddp+pp"));
  EXPECT_THAT(kinds({"--ways", "ddp,fsdp"}), ElementsAre("ddp", "fsdp"));
}

TEST(PlanFlags, TakeTheProfileThatComesWithTheProgramForOtherDevices) {
  const auto profile_by = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"--model", "resnet50", "--batch", "16"});
    return parse_plan(words)->profile;
  };
  EXPECT_EQ(profile_by({"--device", "T4"}), "resnet50");
  EXPECT_EQ(profile_by({"--device", "T4", "--measure-rounds", "1"}), "") << "measured here";
  EXPECT_EQ(profile_by({"--device", "T4", "--", "--image-size", "64"}), "") << "another net";
  EXPECT_EQ(profile_by({}), "") << "about this machine";
}

TEST(PlanFlags, RefuseWhatContradictsOrIsUnknown) {
  EXPECT_THAT(refusal_of({"--ways", "serial,dpp"}), HasSubstr("did you mean dp"));
  EXPECT_THAT(refusal_of({"--nodes", "0"}), HasSubstr("--nodes"));
  EXPECT_THAT(refusal_of({"--places", "2,2"}), HasSubstr("twice"));
  EXPECT_THAT(refusal_of({"--link", "fast"}), HasSubstr("25Gbit,50us"));
  EXPECT_THAT(refusal_of({"--profile", "p.json", "--measure"}), HasSubstr("--measure"));
  EXPECT_THAT(refusal_of({"--profile", "p.json", "--", "--opt", "sgd"}), HasSubstr("after --"));
  EXPECT_THAT(refusal_of({"--output", "plan.txt"}), HasSubstr(".html"));
  EXPECT_THAT(refusal_of({"--", "--optt", "sgd"}), HasSubstr("--opt"));
  EXPECT_THAT(refusal_of({"--", "--help"}), HasSubstr("lockstep help train"));
  EXPECT_THAT(refusal_of({"--what-if", "link=fast"}), HasSubstr("25Gbit"));
  EXPECT_THAT(refusal_of({"--device-rate", "5"}), HasSubstr("--device"));
  const std::vector<std::string> devices{"--device", "T4,A100", "--samples", "1000"};
  const auto of_devices = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = devices;
    words.insert(words.end(), more.begin(), more.end());
    return refusal_of(words);
  };
  EXPECT_THAT(of_devices({"--device-rate", "5"}), HasSubstr("write DEVICE=RATE"));
  EXPECT_THAT(of_devices({"--price", "T4=1"}), HasSubstr("--price has none of A100"));
  EXPECT_THAT(of_devices({"--price", "T4=1,A100=2,L4=1"}), HasSubstr("does not name L4"));
  EXPECT_THAT(of_devices({"--price", "T4=1,T4=2"}), HasSubstr("twice"));
  EXPECT_THAT(of_devices({"--price", "T4=0"}), HasSubstr("above 0"));
  EXPECT_THAT(of_devices({"--price", "1,2"}), HasSubstr("DEVICE=NUMBER for each"));
  EXPECT_THAT(of_devices({"--price", "T4=1,2"}), HasSubstr("DEVICE=NUMBER for each"));
  EXPECT_THAT(of_devices({"--budget", "5"}), HasSubstr("needs a --price"));
  EXPECT_THAT(of_devices({"--currency", "EUR"}), HasSubstr("that of a --price"));
  EXPECT_THAT(refusal_of({"--device", "T4,t4"}), HasSubstr("twice"));
  EXPECT_THAT(refusal_of({"--within-hours", "5"}), HasSubstr("say its --samples"));
  EXPECT_THAT(refusal_of({"--device", "V100", "--measure"}), HasSubstr("--measure"));
  EXPECT_THAT(refusal_of({"--train", "--profile", "p.json"}), HasSubstr("--profile"));
  EXPECT_FALSE(parse_plan({"--help"}).has_value());
}

// An answer that leaves out what was asked for would lie.
TEST(PlanFlags, RefuseWhatWouldBeIgnored) {
  using Given = std::vector<std::string>;
  const auto both = [](Given words, const Given& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const Given& given : {Given{"--measure-batches", "4"}, {"--measure-rounds", "3"},
           {"--measure-minutes", "3"}, {"--save", "q.json"}, {"--plugin", "/nonexistent.so"},
           {"--data", "mnist:x"}, {"--cores-a-place", "2"}}) {
    EXPECT_THAT(refusal_of(both({"--profile", "p.json"}, given)), HasSubstr(given[0]));
  }
  EXPECT_NO_THROW(parse_plan({"--profile", "p.json", "--plugin", "nets.so", "--data", "mnist:x",
      "--cores-a-place", "2", "--confirm", "2", "--", "--opt", "sgd"}));
  for (const Given& asked : {Given{"--places", "4"}, {"--nodes", "2"}, {"--link", "1Gbit"},
           {"--what-if", "nodes=2"}, {"--json"}, {"--output", "x.html"}, {"--confirm", "1"}})
    EXPECT_THAT(refusal_of(both({"--measure"}, asked)), HasSubstr(asked[0] + " asks"));
  EXPECT_THAT(refusal_of({"--device", "V100", "--confirm", "1", "--profile", "p.json"}),
      HasSubstr("--confirm"));
  EXPECT_THAT(refusal_of({"--price", "3"}), HasSubstr("--samples"));
  EXPECT_THAT(refusal_of({"--what-if", "price=3"}), HasSubstr("--samples"));
  EXPECT_THAT(refusal_of({"--mtbf", "24"}), HasSubstr("--snapshot-seconds"));
  EXPECT_THAT(refusal_of({"--recovery-seconds", "24"}), HasSubstr("--mtbf"));
  EXPECT_THAT(refusal_of({"--snapshot-seconds", "2"}), HasSubstr("--snapshot-interval"));
  for (const Given& setting : {Given{"--schedule", "gpipe"}, {"--chunks", "4"},
           {"--shard-optimizer"}, {"--comm-hook", "bf16"}, {"--bucket-mb", "1"},
           {"--reshard", "never"}, {"--replicas", "2"}}) {
    EXPECT_THAT(
        refusal_of(both({"--ways", "serial,dp"}, setting)), HasSubstr(setting[0] + " is for"));
  }
  EXPECT_THAT(refusal_of({"--ways", "ddp+pp", "--comm-hook", "bf16"}), HasSubstr("is for ddp"));
  EXPECT_THAT(refusal_of({"--ways", "dp", "--checkpoint", "always"}), HasSubstr("is for serial"));
  EXPECT_THAT(refusal_of({"--reshard", "sometimes"}), HasSubstr("after-forward"));
  EXPECT_THAT(refusal_of({"--ways", "pp", "--grad-accum-steps", "2"}), HasSubstr("without stages"));
  EXPECT_THAT(refusal_of({"--train", "--batch", "4"}), HasSubstr("--batch is not asked"));
}

TEST(PlanFlags, RefuseNumbersThatNobodyMeans) {
  EXPECT_THAT(refusal_of({"--batch", "1e30"}), HasSubstr("--batch"));
  EXPECT_THAT(refusal_of({"--batch", "2.5"}), HasSubstr("--batch"));
  EXPECT_THAT(refusal_of({"--memory", "0"}), HasSubstr("--memory"));
  EXPECT_THAT(refusal_of({"--chunks", "1000000"}), HasSubstr("--chunks"));
  EXPECT_THAT(refusal_of({"--grad-accum-steps", "100000"}), HasSubstr("--grad-accum-steps"));
  EXPECT_THAT(refusal_of({"--nodes", "65536", "--places", "65536"}), HasSubstr("1048576 places"));
}

}  // namespace
}  // namespace lockstep::cli
