#include "lockstep/bench/planning/plan_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/profiles.h"

#include "lockstep/bench/page/page.h"

namespace lockstep::bench {
namespace {

using plan::testing::free_machine;
using plan::testing::uniform;
using ::testing::HasSubstr;

plan::Answer made_answer() {
  plan::Question question{.places = {1, 2, 4}, .machine = free_machine(1, 1, 1e3), .batch = 8};
  question.machine.price = 3;
  question.samples = 1000;
  return plan::answer(uniform(6), question);
}

TEST(PlanSection, IsAPageThatCanBeDrawn) {
  const page::Section section = section_of_plan(made_answer());
  const std::string html =
      page::to_html({.title = "Plan", .sections = {section}, .environment = ""});
  EXPECT_THAT(html, HasSubstr("One step of"));
  EXPECT_THAT(html, HasSubstr("Time against money"));
  EXPECT_THAT(page::to_text(section), HasSubstr("Take "));
}

TEST(PlanSection, ShowsWhatDoesNotFit) {
  plan::Question question{.places = {1, 2}, .machine = free_machine(1, 1), .batch = 8};
  question.machine.memory_bytes = 1000;
  const page::Section section = section_of_plan(plan::answer(uniform(6), question));
  EXPECT_THAT(page::to_text(section), HasSubstr("too many"));
}

TEST(PlanJson, HasEveryChoice) {
  const plan::Answer answer = made_answer();
  const auto object = nlohmann::json::parse(plan_json(answer));
  ASSERT_EQ(object.at("choices").size(), answer.choices.size());
  EXPECT_EQ(object.at("pick"), *answer.pick);
  EXPECT_EQ(object.at("choices")[0].at("step_seconds"), answer.choices[0].prediction.seconds);
}

}  // namespace
}  // namespace lockstep::bench
