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
  const auto command = parse_plan({"--nodes", "1,2", "--places", "4", "--link", "25Gbit,50us",
      "--within", "12GB,5us", "--memory", "16G", "--price", "3.06", "--samples", "50000"});
  EXPECT_THAT(command->question.nodes, ElementsAre(1, 2));
  EXPECT_THAT(command->question.places, ElementsAre(4));
  EXPECT_DOUBLE_EQ(command->question.machine.between.bytes_per_second, 25e9 / 8);
  EXPECT_DOUBLE_EQ(command->question.machine.within.latency, 5e-6);
  EXPECT_DOUBLE_EQ(command->question.machine.memory_bytes, 16.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(command->question.machine.price, 3.06);
  EXPECT_DOUBLE_EQ(command->question.samples, 50000);
  EXPECT_TRUE(command->has_within);
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
  EXPECT_FALSE(parse_plan({"--help"}).has_value());
}

}  // namespace
}  // namespace lockstep::cli
