#include "lockstep/cli/plan/plan_flags.h"

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

TEST(PlanFlags, SayForWhichMachines) {
  const auto command =
      parse_plan({"--nodes", "1,2", "--places", "4", "--link", "25Gbit,50us", "--within",
          "12GB,5us", "--made-hosts", "--memory", "16G", "--price", "3.06", "--samples", "50000"});
  EXPECT_THAT(command->question.nodes, ElementsAre(1, 2));
  EXPECT_THAT(command->question.places, ElementsAre(4));
  EXPECT_DOUBLE_EQ(command->question.machine.between.bytes_per_second, 25e9 / 8);
  EXPECT_DOUBLE_EQ(command->question.machine.within.latency, 5e-6);
  EXPECT_DOUBLE_EQ(command->question.machine.memory_bytes, 16.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(command->question.machine.price, 3.06);
  EXPECT_DOUBLE_EQ(command->question.samples, 50000);
  EXPECT_TRUE(command->has_within);
  EXPECT_TRUE(command->question.machine.is_one_machine);
}

TEST(PlanFlags, SayWhatFailsAndHowGradientsGo) {
  const auto command = parse_plan({"--mtbf", "24", "--snapshot-seconds", "10", "--comm-hook",
      "bf16", "--shard-optimizer", "--grad-accum-steps", "2", "--checkpoint", "always",
      "--bucket-mb", "1", "--what-if", "link=100Gbit", "--what-if", "places=8,batch=512"});
  EXPECT_EQ(command->question.failures.between, 24 * 3600);
  EXPECT_EQ(command->question.failures.snapshot, 10);
  const plan::Way& settings = command->question.ways.settings;
  EXPECT_EQ(settings.sent_as, plan::SentAs::kBf16);
  EXPECT_TRUE(settings.is_sharded);
  EXPECT_EQ(settings.accumulated, 2);
  EXPECT_EQ(settings.checkpoint, Checkpoint::kAlways);
  EXPECT_EQ(settings.bucket_bytes, std::size_t{1} << 20);
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
  EXPECT_THAT(refusal_of({"--device", "V100", "--measure"}), HasSubstr("--measure"));
  EXPECT_THAT(refusal_of({"--train", "--profile", "p.json"}), HasSubstr("--profile"));
  EXPECT_FALSE(parse_plan({"--help"}).has_value());
}

}  // namespace
}  // namespace lockstep::cli
