#include "lockstep/plan/answer.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;
using testing::free_machine;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::uniform;

Question question_of(std::vector<int> places, double bytes_per_second = 0) {
  return {.places = std::move(places),
      .machine = free_machine(1, 1, bytes_per_second),
      .batch = 8,
      .ways = {.kinds = {"serial", "ddp", "pp"}, .micro_batches = {4}}};
}

std::vector<std::string> described(const Answer& answer) {
  std::vector<std::string> texts;
  for (const Choice& choice : answer.choices) texts.push_back(describe(choice.prediction.way));
  return texts;
}

TEST(Answer, PutsTheFastestFirst) {
  const Answer found = answer(uniform(4), question_of({1, 2, 4}));
  EXPECT_THAT(described(found), ElementsAre("ddp x 4", "pp x 4 (1f1b, 4 chunks)", "ddp x 2",
                                    "pp x 2 (1f1b, 4 chunks)", "serial"));
  EXPECT_DOUBLE_EQ(found.choices[0].speed_up, 4);
  EXPECT_DOUBLE_EQ(found.choices[2].efficiency, 1);
  ASSERT_EQ(found.pick, 0u);
  EXPECT_THAT(verdict_of(found),
      StartsWith("Take ddp x 4: 0.33 samples/s, 4 times those of one place (100 % efficiency). Its "
                 "places compute nearly all the time"));
}

TEST(Answer, TakesTheFewestPlacesOfEquals) {
  // With a network this slow nothing pays.
  Question question = question_of({1, 2}, 1);
  question.ways.kinds = {"serial", "ddp"};
  const Answer found = answer(uniform(4), question);
  EXPECT_EQ(described(found).front(), "serial");
  // And where two places are 1 % faster, one is still the better choice.
  ModelProfile profile = uniform(4);
  profile.company = {.compute = {1, 1.98}, .memory = {1, 1}};
  question = question_of({1, 2});
  question.ways.kinds = {"serial", "ddp"};
  const Answer close = answer(profile, question);
  EXPECT_EQ(described(close).front(), "ddp x 2");
  EXPECT_EQ(describe(close.choices[*close.pick].prediction.way), "serial");
  EXPECT_THAT(verdict_of(close), HasSubstr("ddp x 2 is faster by 1 % but takes 2 places"));
}

TEST(Answer, GivesEachPlaceTheSameBatchIfAsked) {
  Question question = question_of({2});
  question.is_batch_of_place = true;
  const Answer found = answer(uniform(4), question);
  EXPECT_EQ(found.choices[0].prediction.batch, 16);
  EXPECT_DOUBLE_EQ(found.choices[0].efficiency, 1) << "over one place with a batch of 8";
}

TEST(Answer, SaysWhatDoesNotFitAndHowMuchIsMissing) {
  ModelProfile profile = uniform(4, 1e6);
  Question question = question_of({1, 2, 4});
  question.machine.memory_bytes = 5e6;
  const Answer found = answer(profile, question);
  EXPECT_THAT(described(found).front(), StartsWith("pp x 4"));
  EXPECT_THAT(described(found).back(), StartsWith("serial"));
  EXPECT_NEAR(found.choices.back().lacking_bytes, 3e6 + 320, 1e-6);
  question.machine.memory_bytes = 1e6;
  const Answer none = answer(profile, question);
  EXPECT_FALSE(none.pick.has_value());
  EXPECT_THAT(verdict_of(none), StartsWith("Nothing fits: pp x 4"));
}

TEST(Answer, CountsTimeAndMoney) {
  Question question = question_of({1, 2});
  question.machine.price = 3;
  question.samples = 36000;
  const Answer found = answer(uniform(4), question);
  EXPECT_DOUBLE_EQ(found.choices.back().hours, 36000 * 12 / 3600.0);
  EXPECT_DOUBLE_EQ(found.choices.back().cost, 360);
}

TEST(Answer, KeepsOfTheFrontWhatNothingBeatsInTimeAndMoney) {
  const Answer found = answer(uniform(4), question_of({1, 2, 4}));
  std::vector<std::string> front;
  for (const std::size_t index : pareto_front(found))
    front.push_back(describe(found.choices[index].prediction.way));
  EXPECT_THAT(front, ElementsAre("serial", "ddp x 2", "ddp x 4"));
}

TEST(Answer, ListsWhatIsImpossible) {
  const Answer found = answer(uniform(2), question_of({4}));
  ASSERT_EQ(found.impossible.size(), 1u);
  EXPECT_THAT(found.impossible[0].reason, HasSubstr("cannot be cut into 4 stages"));
}

TEST(Answer, AboutThousandsOfPlacesIsThereAtOnce) {
  Question question = question_of({8}, 1e9);
  question.nodes = {1, 16, 256, 2048};
  question.is_batch_of_place = true;
  question.ways.kinds = {"ddp", "ddp+pp"};
  const Answer found = answer(uniform(64), question);
  EXPECT_EQ(found.choices.front().machine.all_places(), 16384);
}

// With more nodes failures take more: what is left counts.
TEST(Answer, TakesWhatFailuresLeaveMostOf) {
  Question question = question_of({1});
  question.nodes = {1, 2};
  question.ways.kinds = {"serial", "ddp"};
  question.failures = {.between = 100, .snapshot = 20, .recovery = 60};
  const Answer found = answer(uniform(4), question);
  EXPECT_EQ(described(found).front(), "serial");
  EXPECT_GT(found.choices[1].prediction.samples_per_second(),
      found.choices[0].prediction.samples_per_second());
}

TEST(Answer, OfATrainingThatComesToNoEndSaysSo) {
  Question question = question_of({1});
  question.failures = {.between = 0.36, .snapshot = 5, .recovery = 5};
  const Answer found = answer(uniform(4), question);
  EXPECT_THAT(found.choices, ::testing::IsEmpty());
  EXPECT_THAT(verdict_of(found), HasSubstr("failures come every 0.36 s"));
}

TEST(Answer, RefusesAQuestionThatHasNone) {
  const auto refusal = [](const auto& change) {
    Question question = question_of({1});
    question.ways.micro_batches.clear();
    change(question);
    return ::lockstep::testing::message_of<InvalidArgument>([&] { answer(uniform(2), question); });
  };
  for (const double batch : {0.0, 2.5, 1e30, std::nan("")})
    EXPECT_THAT(refusal([&](Question& to) { to.batch = batch; }), HasSubstr("whole number"));
  EXPECT_THAT(refusal([](Question& to) { to.nodes = to.places = {65536}; }),
      HasSubstr("65536 nodes of 65536 places are more than 1048576"));
  EXPECT_THAT(refusal([](Question& to) { to.machine.price = 1; }), HasSubstr("--samples"));
  EXPECT_THAT(refusal([](Question& to) { to.ways.micro_batches = {1000000}; }),
      HasSubstr("--chunks 1000000 is more than the 8 samples"));
  EXPECT_THAT(refusal([](Question& to) { to.ways.settings.accumulated = 100000; }),
      HasSubstr("--grad-accum-steps 100000 is more than the 8 samples"));
}

TEST(Answer, SaysWhatWasMeasuredWhereItWasTrained) {
  const Answer found = answer(uniform(4), question_of({1, 2}));
  EXPECT_THAT(verdict_of(found, 16),
      StartsWith("Take ddp x 2: 0.5 samples/s as trained here; predicted were 0.17 samples/s, "));
}

}  // namespace
}  // namespace lockstep::plan
