#include "lockstep/plan/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tuple>

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

// A profile as it is measured on cores, and one of other people's figures.
std::vector<ModelProfile> kinds_of_profile() {
  ModelProfile measured = testing::uniform(4, 1e6);
  measured.is_measured = true;
  measured.company = {.compute = {1, 1.1}, .memory = {1, 1.1}, .cores = 4};
  measured.overheads = {.hand_over = CostCurve({{8, 1e-3}}), .socket_core = 1e-9};
  return {testing::uniform(4, 1e6), measured};
}

std::vector<Link> kinds_of_link() {
  Link measured = parse_link("1Gbit,100us");
  measured.core_share = 0.01;
  measured.measured = CostCurve({{1e3, 1e-4}, {1e6, 8e-3}, {64e6, 0.5}});
  return {parse_link("1Gbit,100us"), measured};
}

// What nothing depends on would be a promise that is not kept.
TEST(Scenario, ChangesTheAnswerWithEveryProfileAndLink) {
  for (const ModelProfile& profile : kinds_of_profile()) {
    for (const Link& link : kinds_of_link()) {
      Question question{.nodes = {2}, .places = {2}, .batch = 32, .samples = 1e6};
      question.machine = {.within = parse_link("1GB,10us"), .between = link, .price = 1};
      question.ways.kinds = {"ddp"};
      const auto outcome = [&](const Scenario& scenario) {
        const Choice choice = answer(profile, scenario).choices.at(0);
        return std::tuple(
            choice.prediction.seconds, choice.machine.all_places(), choice.cost, choice.fits());
      };
      const auto before = outcome({.text = "", .question = question});
      for (const char* change :
          {"link=100Mbit", "link=2Gbit", "latency=50ms", "latency=1us", "within=100MB", "places=4",
              "nodes=4", "batch=64", "memory=1M", "price=2", "speed=2"})
        EXPECT_NE(outcome(changed(question, change)), before)
            << change << (link.measured.is_free() ? "" : ", link measured")
            << (profile.is_measured ? ", profile measured" : "");
    }
  }
}

TEST(Scenario, OfALatencyMovesAllThatWasMeasured) {
  const Link link = kinds_of_link()[1];
  EXPECT_DOUBLE_EQ(with_latency(link, 50e-3).seconds(1e6), 8e-3 + 49.9e-3);
  EXPECT_NEAR(with_latency(link, 0).seconds(1e3), 0, 1e-12);
  EXPECT_EQ(with_latency(link, 50e-3).latency, 50e-3);
}

TEST(Scenario, OfAFasterLinkIsNoFasterThanTheCoreThatMovesTheBytes) {
  Question question = made_question();
  question.machine.between = {.bytes_per_second = 1e9, .core_share = 0.5};
  const Link twice = changed(question, "link=12Gbit").question.machine.between;
  EXPECT_DOUBLE_EQ(twice.bytes_per_second, 1.5e9);
  EXPECT_DOUBLE_EQ(twice.core_share, 0.75);
  const Link most = changed(question, "link=100Gbit").question.machine.between;
  EXPECT_DOUBLE_EQ(most.bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(most.core_share, 1);
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
  EXPECT_THAT(refusal("memory=0"), HasSubstr("memory must be above 0"));
  EXPECT_THAT(refusal("price=2"), HasSubstr("--samples"));
  EXPECT_THAT(refusal("nodes=65536,places=65536"), HasSubstr("more than 1048576 places"));
}

}  // namespace
}  // namespace lockstep::plan
