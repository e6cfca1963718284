#include "lockstep/plan/answer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tuple>
#include <utility>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::free_machine;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::uniform;
using ::testing::UnorderedElementsAre;

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

std::size_t number_of(const Answer& answer, const char* way) {
  const auto all = described(answer);
  return static_cast<std::size_t>(std::ranges::find(all, way) - all.begin());
}

TEST(Answer, PutsTheFastestFirst) {
  const Answer found = answer(uniform(4), question_of({1, 2, 4}));
  EXPECT_THAT(described(found), ElementsAre("ddp x 4", "pp x 4 (1f1b, 4 chunks)", "ddp x 2",
                                    "pp x 2 (1f1b, 4 chunks)", "serial"));
  EXPECT_DOUBLE_EQ(found.choices[0].speed_up, 4);
  EXPECT_DOUBLE_EQ(found.choices[2].efficiency, 1);
  ASSERT_EQ(found.pick, 0u);
  EXPECT_THAT(verdict_of(found),
      StartsWith("Take ddp x 4: 0.33 samples/s (0.2 to 0.55), 4 times those of one place (100 % "
                 "efficiency). Its places compute nearly all the time"));
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
  EXPECT_THAT(verdict_of(close),
      EndsWith(". This plan cannot tell serial from ddp x 2; the pick is the one with the "
               "fewest places."));
}

// A profile that is off by a fourth is off alike for all ways.
TEST(Answer, TellsWaysOfAnUnsureProfileApart) {
  const auto equals_at = [](double slower) {
    ModelProfile profile = uniform(4);
    profile.overheads.threads = CostCurve({{4, slower * 4 * 12}});
    Question question = question_of({2});
    question.ways.kinds = {"ddp", "dp"};
    const Answer found = answer(profile, question);
    EXPECT_GT(found.choices[0].most_times(), 1.3) << "the intervals are alike, and wide";
    EXPECT_EQ(described(found).at(0), "ddp x 2");
    return found.equals.size();
  };
  EXPECT_EQ(equals_at(0.04), 2U);
  EXPECT_EQ(equals_at(0.12), 1U);
}

// Of batches that were not measured all larger ones are off alike, and smaller ones the other way.
TEST(Answer, TellsWaysApartIfTheirBatchesAreOnOneSideOfThoseMeasured) {
  const auto equals_of = [](double least, double most) {
    ModelProfile profile = uniform(4);
    profile.company = {.compute = {1, 1.82}, .memory = {1, 1}};
    for (LayerCurves& layer : profile.layers)
      for (const auto time : LayerCurves::times())
        layer.*time = CostCurve({{least, (layer.*time)(least)}, {most, (layer.*time)(most)}});
    Question question = question_of({1, 2});
    question.batch = 16;
    question.ways.kinds = {"serial", "ddp"};
    const Answer found = answer(profile, question);
    EXPECT_NEAR(found.choices[0].rate() / found.choices[1].rate(), 1.1, 0.01);
    return found.equals.size();
  };
  EXPECT_EQ(equals_of(8, 16), 1U) << "serial has 16 samples, each of two places 8";
  EXPECT_EQ(equals_of(1, 2), 1U) << "both have more";
  EXPECT_EQ(equals_of(17, 32), 1U) << "both have less";
  EXPECT_EQ(equals_of(1, 8), 2U) << "serial has more";
  EXPECT_EQ(equals_of(16, 32), 2U) << "each of two has less";
  EXPECT_EQ(equals_of(10, 12), 2U) << "one has more, the other less";
}

TEST(Answer, HasForEachMachineTheSimplestOfItsFastest) {
  Question question = question_of({1, 4});
  question.ways.kinds = {"serial", "ddp", "fsdp", "pp"};
  const Answer found = answer(uniform(4), question);
  const auto best_of = [](const Answer& answer) {
    std::vector<std::string> best;
    for (const std::size_t i : best_on_each_machine(answer))
      best.push_back(describe(answer.choices[i]));
    return best;
  };
  EXPECT_THAT(best_of(found), ElementsAre("ddp x 4", "serial")) << "fsdp is as fast";
  const std::size_t ddp = number_of(found, "ddp x 4"), fsdp = number_of(found, "fsdp x 4");
  EXPECT_THAT(best_of(with_trained(found, {{ddp, 30}, {fsdp, 25}})),
      UnorderedElementsAre("fsdp x 4", "serial"))
      << "in training it was faster";
  EXPECT_THAT(
      best_of(with_trained(found, {{fsdp, 60}})), UnorderedElementsAre("fsdp x 4", "serial"))
      << "nobody knows how fast ddp is";
}

TEST(Answer, TakesTheFastestOfEquallySimpleWays) {
  Question question = question_of({2});
  question.ways.kinds = {"ddp", "dp", "pp"};
  const Answer found = answer(uniform(4), question);
  const std::size_t ddp = number_of(found, "ddp x 2"), dp = number_of(found, "dp x 2"),
                    pp = number_of(found, "pp x 2 (1f1b, 4 chunks)");
  EXPECT_EQ(with_trained(found, {{ddp, 20}, {dp, 20.4}, {pp, 19.9}}).pick, ddp);
  const Answer other = with_trained(found, {{ddp, 20.4}, {dp, 20}, {pp, 19.9}});
  EXPECT_EQ(other.pick, dp);
  EXPECT_THAT(verdict_of(other), HasSubstr("; the pick is the fastest of the simplest."));
  EXPECT_THAT(verdict_of(with_trained(found, {{ddp, 20.4}, {dp, 20}, {pp, 20.2}})),
      HasSubstr("; the pick is the fastest."));
  EXPECT_THAT(verdict_of(with_trained(found, {{ddp, 20}, {pp, 19.9}})),
      HasSubstr("; the pick is the simplest."));
}

TEST(Answer, TakesTheFastestOfTheFewestPlaces) {
  Question question = question_of({2, 4});
  question.ways.kinds = {"ddp", "dp"};
  const Answer found = answer(uniform(4), question);
  const std::size_t ddp = number_of(found, "ddp x 2"), dp = number_of(found, "dp x 2"),
                    four = number_of(found, "ddp x 4");
  const Answer trained = with_trained(found, {{ddp, 20.4}, {dp, 20}, {four, 19.9}});
  EXPECT_EQ(trained.pick, dp);
  EXPECT_THAT(
      verdict_of(trained), HasSubstr("; the pick is the fastest of those with the fewest places."));
}

TEST(Answer, ComparesWhatWasTrained) {
  const Answer found = answer(uniform(4), question_of({1, 2, 4}));
  const std::size_t four = number_of(found, "ddp x 4"), two = number_of(found, "ddp x 2");
  const Answer slower = with_trained(found, {{four, 30}, {two, 20}});
  EXPECT_EQ(slower.pick, two) << "predicted were 24 and 48 seconds";
  EXPECT_THAT(verdict_of(slower),
      AllOf(StartsWith("Take ddp x 2: 0.4 samples/s as trained here, "),
          EndsWith("Predicted were 0.17 samples/s. It was the fastest of 2 that were trained for "
                   "some steps here. Trained beside it: ddp x 4 0.27 samples/s.")));
  const Answer alike = with_trained(found, {{four, 20}, {two, 20.2}});
  EXPECT_EQ(alike.pick, two);
  EXPECT_THAT(verdict_of(alike), HasSubstr("These trainings do not tell ddp x 2 from ddp x 4; "));
  const std::size_t serial = number_of(found, "serial");
  EXPECT_EQ(with_trained(found, {{serial, 90}}).pick, serial) << "others are only predicted";
  const Answer both = with_trained(found, {{serial, 90}, {four, 30}});
  EXPECT_DOUBLE_EQ(both.choices[four].speed_up, 3) << "over what was trained, too";
  EXPECT_DOUBLE_EQ(both.choices[serial].speed_up, 1);
  EXPECT_EQ(with_trained(found, {}).pick, found.pick);
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

TEST(Answer, NamesWhatIsCheaperThanTheFastest) {
  Question question = question_of({1});
  question.nodes = {1, 2};
  question.machine.price = 3;
  question.samples = 36000;
  Answer found = answer(uniform(4), question);
  ASSERT_EQ(described(found).front(), "ddp x 2");
  ASSERT_EQ(described(found).back(), "serial");
  const Choice& fastest = found.choices.front();
  Choice& serial = found.choices.back();
  EXPECT_THAT(verdict_of(found), Not(HasSubstr("cheapest"))) << "twice as many, half as long";
  serial.cost = 0.98 * fastest.cost;
  EXPECT_THAT(verdict_of(found), Not(HasSubstr("cheapest"))) << "about equal";
  serial.cost = 0.6 * fastest.cost;
  serial.hours = 1.2 * fastest.hours;
  EXPECT_THAT(verdict_of(found),
      EndsWith(". The cheapest of all, serial, costs 60 % as much and takes 1.2 times as long."));
  EXPECT_THAT(verdict_of(with_trained(found, {{0, 16}})), Not(HasSubstr("cheapest")))
      << "that was not trained";
  serial.lacking_bytes = 1;
  EXPECT_THAT(verdict_of(found), Not(HasSubstr("cheapest"))) << "it does not fit";
}

TEST(Answer, SaysOnHowManyNodesTheCheapestIs) {
  Question question = question_of({1});
  question.nodes = {2, 4};
  question.machine.price = 3;
  question.samples = 36000;
  Answer found = answer(uniform(4), question);
  ASSERT_EQ(described(found).front(), "ddp x 4");
  for (Choice& choice : found.choices)
    if (describe(choice.prediction.way) == "ddp x 2") choice.cost /= 2;
  EXPECT_THAT(
      verdict_of(found), HasSubstr(". The cheapest of all, ddp x 2 on 2 nodes, costs 50 % as "));
}

// A slow device for 1 an hour, and one that is three times as fast for 6.
std::vector<Answer> on_two_devices(Question question) {
  question.samples = 36000;
  question.machine.device = "slow";
  question.machine.place_price = 1;
  Answer slow = answer(uniform(4), question);
  question.machine.device = "fast";
  question.machine.place_price = 6;
  const ModelProfile faster = uniform(4).scaled_to(8, uniform(4).step_seconds(8) / 3);
  return {std::move(slow), answer(faster, question)};
}

std::string picked_by(const Answer& found) {
  const Choice& choice = found.choices.at(found.pick.value());
  return describe(choice.prediction.way) + " on " + choice.machine.device;
}

TEST(Devices, AreComparedInOneOrder) {
  const Answer all = merged(on_two_devices(question_of({1, 2, 4})));
  EXPECT_EQ(all.choices.size(), 10U);
  EXPECT_TRUE(std::ranges::is_sorted(all.choices, std::greater<>(), &Choice::rate));
  EXPECT_EQ(picked_by(all), "ddp x 4 on fast");
  EXPECT_DOUBLE_EQ(all.choices.front().speed_up, 4) << "over one place of its own kind";
  EXPECT_DOUBLE_EQ(all.choices.back().cost, 36000 * 12 / 3600.0);
  EXPECT_THAT(verdict_of(all), HasSubstr("The cheapest of all, ddp x 4 on slow, costs 50 %"));
}

// A profile of estimates tells neither devices nor ways apart.
TEST(Devices, HaveOneWayEachAmongThoseThatCannotBeToldApart) {
  std::vector<Answer> answers;
  for (const char* const device : {"one", "other"}) {
    Question question = question_of({2});
    question.ways.kinds = {"ddp", "fsdp", "dp"};
    question.machine.device = device;
    answers.push_back(answer(uniform(4), question));
  }
  const Answer all = merged(std::move(answers));
  ASSERT_EQ(all.equals.size(), 6U);
  std::vector<std::string> named;
  for (const std::size_t number : distinct_equals(all))
    named.push_back(describe(all.choices[number]));
  EXPECT_THAT(named, ElementsAre("ddp x 2 on one", "ddp x 2 on other"));
  EXPECT_THAT(verdict_of(all),
      HasSubstr("cannot tell ddp x 2 on one from ddp x 2 on other and 4 more; the pick is"));
}

TEST(Devices, TheCheapestInTimeAndTheFastestForTheMoneyArePicked) {
  Question question = question_of({1, 2, 4});
  question.within_hours = 61;  // two slow ones may need 93, for the same money
  question.currency = "EUR";
  const Answer in_time = merged(on_two_devices(question));
  EXPECT_EQ(picked_by(in_time), "ddp x 4 on slow");
  EXPECT_THAT(verdict_of(in_time),
      StartsWith("Take ddp x 4 on slow, the cheapest that surely ends within 61 hours: 30 hours "
                 "(18.1 to 49.8) and 120 EUR (72.3 to 199) for the training. That is 0.33"));
  question.within_hours = 100;
  EXPECT_THAT(verdict_of(merged(on_two_devices(question))),
      AllOf(StartsWith("Take ddp x 2 on slow, the cheapest that surely ends within 100 hours: 60 "),
          HasSubstr(" For about the same money ddp x 4 on slow takes 30 hours.")));
  question.within_hours = 12;
  EXPECT_THAT(verdict_of(merged(on_two_devices(question))),
      StartsWith("Take ddp x 4 on fast, the cheapest that probably ends within 12 hours: 10 hours "
                 "(6.02 to 16.6) and 240 EUR "));
  question.within_hours = 0;
  question.budget = 130;
  const Answer for_the_money = merged(on_two_devices(question));
  EXPECT_EQ(picked_by(for_the_money), "ddp x 4 on slow");
  question.within_hours = 5;
  const Answer nothing = merged(on_two_devices(question));
  EXPECT_FALSE(nothing.pick);
  EXPECT_THAT(
      verdict_of(nothing), StartsWith("Nothing ends within 5 hours and costs at most 130 EUR: the "
                                      "fastest, ddp x 4 on fast, takes 10 hours, "));
}

// Stages that take turns would end in time, too, and are simpler.
TEST(Answer, TakesTheFastestOnTheFewestPlacesThatEndInTime) {
  Question question = question_of({2, 4});
  question.ways.kinds = {"mp", "pp"};
  question.samples = 3600;
  question.within_hours = 100;
  const Answer found = answer(uniform(4), question);
  EXPECT_THAT(verdict_of(found),
      AllOf(StartsWith("Take pp x 2 (1f1b, 4 chunks), the one with the fewest places that surely "
                       "ends within 100 hours: 7.5 hours"),
          HasSubstr("; pp x 4 (1f1b, 4 chunks) is faster by 43 % but takes 4 places.")));
}

TEST(Answer, CallsTheCheapestOfWhatWasTrainedNotTheFastest) {
  Question question = question_of({1, 2});
  question.machine.place_price = 1;
  question.samples = 3600;
  question.within_hours = 100;
  const Answer found = answer(uniform(4), question);
  ASSERT_THAT(described(found), ElementsAre("ddp x 2", "pp x 2 (1f1b, 4 chunks)", "serial"));
  EXPECT_THAT(verdict_of(with_trained(found, {{0, 50}, {2, 96}})),
      AllOf(StartsWith("Take serial, the cheapest of those trained that surely ends within 100 "
                       "hours: 12 hours"),
          EndsWith(" Trained beside it: ddp x 2 0.16 samples/s."), Not(HasSubstr("the fastest"))));
}

TEST(Answer, WritesLittleAsMoreThanNothing) {
  Question question = question_of({1});
  question.ways.kinds = {"serial"};
  const ModelProfile slow = uniform(4).scaled_to(8, 8 / 0.0025);
  EXPECT_THAT(verdict_of(answer(slow, question)), StartsWith("Take serial: 0.0025 samples/s ("));
}

TEST(Answer, TakesTheSimplestOfWaysThatAreAsFast) {
  Question question = question_of({4});
  question.ways.kinds = {"pp", "fsdp", "ddp"};
  const Answer found = answer(uniform(4), question);
  EXPECT_EQ(describe(found.choices.at(found.pick.value()).prediction.way), "ddp x 4");
}

TEST(Answer, KeepsOfTheFrontWhatNothingBeatsInTimeAndMoney) {
  const Answer found = answer(uniform(4), question_of({1, 2, 4}));
  std::vector<std::string> front;
  for (const std::size_t index : pareto_front(found))
    front.push_back(describe(found.choices[index].prediction.way));
  EXPECT_THAT(front, ElementsAre("serial", "ddp x 2", "ddp x 4"));
}

TEST(Answer, KeepsOfTheFrontWhatWasTrained) {
  const Answer found = answer(uniform(4), question_of({1, 2}));
  ASSERT_EQ(described(found).front(), "ddp x 2");
  ASSERT_EQ(described(found).back(), "serial");
  const std::size_t serial = found.choices.size() - 1;
  // Alone it was faster than all others are planned.
  EXPECT_THAT(pareto_front(with_trained(found, {{serial, 1}})), ElementsAre(serial));
}

TEST(Answer, ListsWhatIsImpossible) {
  const Answer found = answer(uniform(2), question_of({4}));
  ASSERT_EQ(found.impossible.size(), 1u);
  EXPECT_THAT(found.impossible[0].reason, HasSubstr("cannot be cut into 4 stages"));
}

TEST(Devices, RefuseAWayOnce) {
  std::vector<Answer> answers;
  for (const char* const device : {"one", "other"}) {
    Question question = question_of({4});
    question.machine.device = device;
    answers.push_back(answer(uniform(2), question));
  }
  const Answer all = merged(std::move(answers));
  ASSERT_EQ(all.impossible.size(), 1U);
  EXPECT_EQ(all.impossible[0].way, "pp x 4 (1f1b, 4 chunks)");
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

using ::lockstep::testing::message_of;

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

constexpr double kHour = 3600;

TEST(Goodput, IsWholeWithoutFailuresAndSnapshots) {
  EXPECT_EQ(goodput_of({}, 1000).share, 1);
  EXPECT_DOUBLE_EQ(goodput_of({.snapshot = 1, .interval = 9}, 1).share, 0.9);
}

TEST(Goodput, TakesTheBestIntervalWhereNoneIsGiven) {
  const Failures failures{.between = 24 * kHour, .snapshot = 10, .recovery = 60};
  const Goodput best = goodput_of(failures, 1);
  // Young's first order: the root of twice the snapshot's time and the mean time between failures.
  EXPECT_NEAR(best.interval / std::sqrt(2 * 10 * 24 * kHour), 1, 0.02);
  for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
    Failures other = failures;
    other.interval = best.interval * factor;
    EXPECT_LT(goodput_of(other, 1).share, best.share) << factor;
  }
}

TEST(Goodput, FallsWithNodesAndWithRecovery) {
  const Failures failures{.between = 24 * kHour, .snapshot = 10, .recovery = 60};
  double before = 1;
  for (int nodes = 1; nodes <= 1024; nodes *= 2) {
    const double share = goodput_of(failures, nodes).share;
    EXPECT_LT(share, before) << nodes;
    before = share;
  }
  Failures slow = failures;
  slow.recovery = 600;
  EXPECT_LT(goodput_of(slow, 8).share, goodput_of(failures, 8).share);
}

TEST(Goodput, AgreesWithFailuresThatAreDrawn) {
  // Intervals of 100 s with snapshots of 5 s, a failure every 500 s, 20 s to recover.
  const Failures failures{.between = 500, .snapshot = 5, .interval = 100, .recovery = 20};
  std::uint64_t state = 1;
  const auto wait = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return -500 * std::log((static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0);
  };
  double elapsed = 0, next = wait();
  constexpr int kIntervals = 20000;
  for (int done = 0; done < kIntervals;) {
    if (next >= elapsed + 105) {
      elapsed += 105;
      ++done;
      continue;
    }
    elapsed = next;
    next = elapsed + wait();
    // A failure during recovery begins it again.
    while (next < elapsed + 20) {
      elapsed = next;
      next = elapsed + wait();
    }
    elapsed += 20;
  }
  EXPECT_NEAR(kIntervals * 100 / elapsed, goodput_of(failures, 1).share, 0.01);
}

TEST(Goodput, OfTheBestIntervalNeedsToKnowWhatASnapshotTakes) {
  EXPECT_THROW(goodput_of({.between = kHour}, 1), InvalidArgument);
  EXPECT_NO_THROW(goodput_of({.between = kHour, .interval = 60}, 1));
}

TEST(Goodput, RefusesNegativeSeconds) {
  EXPECT_THROW(goodput_of({.between = -1}, 1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::plan
