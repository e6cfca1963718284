#include "lockstep/plan/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

using ::lockstep::testing::message_of;
using ::testing::HasSubstr;

Question made_question() {
  Question question{.nodes = {1, 2}, .places = {1, 2}, .batch = 32};
  question.machine.between = parse_link("10Gbit,50us");
  return question;
}

TEST(Scenario, ChangesWhatItNames) {
  const Scenario scenario = changed(made_question(), "link=100Gbit,places=8,batch=64,speed=2.5");
  EXPECT_DOUBLE_EQ(scenario.question.machine.between.bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(scenario.question.machine.between.latency, 50e-6) << "kept";
  EXPECT_EQ(scenario.question.places, std::vector<int>{8});
  EXPECT_EQ(scenario.question.nodes, (std::vector<int>{1, 2})) << "kept";
  EXPECT_EQ(scenario.question.batch, 64);
  EXPECT_EQ(scenario.speed, 2.5);
  EXPECT_DOUBLE_EQ(changed(made_question(), "latency=5us").question.machine.between.latency, 5e-6);
  EXPECT_EQ(changed(made_question(), "memory=1G").question.machine.memory_bytes, 1 << 30);
}

TEST(Scenario, OfAFasterDeviceIsFasterByThat) {
  Question question{.batch = 32};
  const ModelProfile profile = testing::uniform(4);
  const Answer before = answer(profile, question);
  const Answer after = answer(profile, changed(question, "speed=4"));
  EXPECT_NEAR(after.choices[0].prediction.seconds * 4, before.choices[0].prediction.seconds, 1e-9);
}

TEST(Scenario, RefusesWhatItDoesNotKnow) {
  const auto refusal = [](const std::string& text) {
    return message_of<InvalidArgument>([&] { changed(made_question(), text); });
  };
  EXPECT_THAT(refusal("place=2"), HasSubstr("places"));
  EXPECT_THAT(refusal("link"), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refusal("places=none"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("link=fast"), HasSubstr("25Gbit"));
  EXPECT_THAT(refusal("speed=0"), HasSubstr("speed"));
}

}  // namespace
}  // namespace lockstep::plan
