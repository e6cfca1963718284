#include "bench/planning/plan_section.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/plan/profiles.h"

#include "bench/planning/measure_profile.h"
#include "lockstep/core/text.h"
#include "lockstep/plan/answer.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/run/run_report.h"

namespace lockstep::bench {
namespace {

using plan::testing::free_machine;
using plan::testing::uniform;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

plan::Answer made_answer() {
  plan::Question question{.places = {1, 2, 4}, .machine = free_machine(1, 1, 1e3), .batch = 8};
  question.machine.price = 3;
  question.samples = 1000;
  return plan::answer(uniform(6), question);
}

TEST(PlanSection, IsAPageThatCanBeDrawn) {
  const page::Section section = section_of_plan({.answer = made_answer()});
  const std::string html =
      page::to_html({.title = "Plan", .sections = {section}, .environment = ""});
  EXPECT_THAT(html, HasSubstr("One step of"));
  EXPECT_THAT(html, HasSubstr("Time against money"));
  EXPECT_THAT(page::to_text(section), HasSubstr("Take "));
  EXPECT_THAT(section.conclusion.remarks.front(), HasSubstr("of uniform in float32 on a place, "));
  const plot::Figure& figure = section.figures.front();
  EXPECT_THAT(figure.note,
      HasSubstr("the line joins the best choices: nothing else is both faster and cheaper."));
  EXPECT_EQ(figure.series.at(1).name, "best choices");
}

std::size_t rows_of(const page::Section& section, const char* id) {
  return std::ranges::find(section.tables, id, &page::Table::id)->rows.size();
}

// Returns the rows that are marked as the ones to take.
std::vector<std::size_t> picks_in(const page::Section& section, const char* id) {
  const auto& rows = std::ranges::find(section.tables, id, &page::Table::id)->rows;
  std::vector<std::size_t> picks;
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows[row].front().ends_with(" *")) picks.push_back(row);
  return picks;
}

// Many ways of many machines, as a question about devices has them.
plan::Answer large_answer() {
  plan::Question question{
      .nodes = {1, 2, 4}, .places = {2, 4}, .machine = free_machine(1, 1, 1e3), .batch = 64};
  return plan::answer(uniform(8), question);
}

TEST(PlanSection, ShowsOfManyWaysThoseWorthALookAndPutsTheAnswerFirst) {
  const plan::Answer answer = large_answer();
  const page::Section section = section_of_plan({.answer = answer});
  ASSERT_GT(answer.choices.size(), 40U);
  const std::vector<std::size_t> shown = shown_choices(answer);
  EXPECT_LT(shown.size(), 24U);
  EXPECT_THAT(shown, ::testing::Contains(*answer.pick));
  EXPECT_EQ(rows_of(section, "plan-best"), shown.size());
  EXPECT_EQ(rows_of(section, "plan-ways"), answer.choices.size());
  EXPECT_THAT(picks_in(section, "plan-ways"), ::testing::ElementsAre(*answer.pick));
  EXPECT_THAT(picks_in(section, "plan-best"), ::testing::SizeIs(1));
  const std::string text = text_of_plan(section);
  EXPECT_THAT(text, ::testing::StartsWith("Plan: uniform\n\nTake "));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Every way")));
  const std::string html = page::to_html(page_of_plan(section));
  EXPECT_LT(html.find("Take "), html.find("of 10"));
  EXPECT_LT(html.find("of 10"), html.find("<svg"));
  EXPECT_LT(html.find("<svg"), html.find("Every way"));
  EXPECT_THAT(html, HasSubstr("What is assumed"));
}

// Estimates tell hardly anything apart: of each device one line a machine is enough.
TEST(PlanSection, ShowsOfSeveralDevicesOneWayOnEachMachine) {
  std::vector<plan::Answer> answers;
  for (const char* const device : {"T4", "L4", "K80"}) {
    plan::Question question{.places = {2, 4}, .machine = free_machine(1, 1), .batch = 64};
    question.machine.device = device;
    plan::ModelProfile profile = uniform(8);
    profile.is_estimated = true;
    answers.push_back(plan::answer(profile, question));
  }
  const plan::Answer all = plan::merged(std::move(answers));
  ASSERT_GT(all.choices.size(), 30U);
  ASSERT_GT(all.equals.size(), 12U);
  EXPECT_EQ(shown_choices(all).size(), 6U);
  const std::string text = text_of_plan(section_of_plan({.answer = all}));
  EXPECT_THAT(text, HasSubstr(" ways the best on each machine"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("fastest of each kind")));
  EXPECT_THAT(text, ContainsRegex("This plan cannot tell ddp x [24] on T4 from ddp x [24] on "));
}

TEST(PlanSection, OffersToTrainWhatCannotBeToldApart) {
  PlanReport report{.answer = made_answer()};
  report.offered = 1;
  EXPECT_THAT(verdict_of(report), ::testing::Not(HasSubstr("--confirm")));
  report.offered = 3;
  EXPECT_THAT(verdict_of(report), HasSubstr(" --confirm 3 trains "));
  report.confirmed = {{0, 1}};
  EXPECT_THAT(verdict_of(report), ::testing::Not(HasSubstr("--confirm")));
}

TEST(Confirming, BeginsWithThePickAndWhatCannotBeToldApart) {
  plan::Answer answer = made_answer();
  ASSERT_GT(answer.choices.size(), 5U);
  answer.pick = 4;
  answer.equals = {3, 4};
  const auto order_on = [&](int cores) {
    return confirmable(answer, {.model = "toy", .batches = {8}, .cores = cores});
  };
  const auto order = order_on(4);
  ASSERT_EQ(order.size(), answer.choices.size());
  EXPECT_THAT((std::vector(order.begin(), order.begin() + 4)), ::testing::ElementsAre(4, 3, 0, 1));
  for (const std::size_t number : order_on(2))
    EXPECT_LE(answer.choices[number].machine.places, 2) << "as many as there are cores";
}

TEST(PlanSection, SaysWhatAProfileOfOnePlaceDoesNotTell) {
  plan::ModelProfile profile = uniform(6);
  profile.knows_within = false;
  const plan::Question question{.places = {2}, .machine = free_machine(1, 2, 1e9), .batch = 8};
  const auto remarks = [&] {
    return joined(
        section_of_plan({.answer = plan::answer(profile, question)}).conclusion.remarks, "\n");
  };
  EXPECT_THAT(
      remarks(), HasSubstr("The profile is of one place alone: that several of a node do not "));
  profile.knows_within = true;
  EXPECT_THAT(remarks(), ::testing::Not(HasSubstr("one place alone")));
}

TEST(PlanSection, SaysHowItPlansAPeer) {
  plan::Question question{.places = {2}, .machine = free_machine(1, 2, 1e9), .batch = 8};
  question.ways.settings = {.is_pytorch = true, .lock_seconds = 0.02};
  const std::string text =
      page::to_text(section_of_plan({.answer = plan::answer(uniform(6), question)}));
  EXPECT_THAT(text, HasSubstr("dp x 2 (PyTorch's)"));
  EXPECT_THAT(text, HasSubstr("keeps Python's lock for 20.0 ms"));
}

TEST(PlanSection, RemarksOnHowItWasMeasured) {
  PlanReport report{.answer = made_answer()};
  const auto plain = section_of_plan(report).conclusion.remarks;
  report.remark = "Others used 7 % of the cores.";
  const auto remarks = section_of_plan(report).conclusion.remarks;
  ASSERT_EQ(remarks.size(), plain.size() + 1);
  EXPECT_EQ(remarks.back(), report.remark);
}

TEST(PlanSection, SaysInWhichUnitCostsAre) {
  PlanReport report{.answer = made_answer()};
  report.scenarios.push_back({"price=6", report.answer});
  const page::Section section = section_of_plan(report);
  for (const char* id : {"plan-ways", "plan-what-if"}) {
    const auto table = std::ranges::find(section.tables, id, &page::Table::id);
    ASSERT_NE(table, section.tables.end()) << id;
    const auto& heads = table->columns;
    EXPECT_EQ(std::ranges::count(heads, "cost [unit of --price]", &page::Column::head), 1) << id;
  }
  EXPECT_EQ(section.figures.front().y.label, "cost [unit of --price]");
}

TEST(PlanSection, HasNoCostsWithoutAPrice) {
  PlanReport report{.answer = made_answer()};
  plan::Question question = report.answer.question;
  question.machine.price = 0;
  report.answer = plan::answer(uniform(6), question);
  report.scenarios.push_back({"places=4", report.answer});
  const auto what_if = [&] {
    const page::Section section = section_of_plan(report);
    return *std::ranges::find(section.tables, "plan-what-if", &page::Table::id);
  };
  EXPECT_EQ(what_if().columns.back().head, "time");
  // A scenario may have one.
  report.scenarios.push_back({"price=3", made_answer()});
  const page::Table table = what_if();
  EXPECT_EQ(table.columns.back().head, "cost [unit of --price]");
  EXPECT_EQ(table.rows[1].back(), "-");
  EXPECT_NE(table.rows[2].back(), "-");
}

TEST(PlanSection, NamesAShorterTypeAndWhatIsBestWithoutAPrice) {
  plan::ModelProfile profile = uniform(6);
  profile.precision = "bf16-mixed";
  const plan::Question question{.places = {1, 2}, .machine = free_machine(1, 1), .batch = 8};
  const page::Section section = section_of_plan({.answer = plan::answer(profile, question)});
  EXPECT_THAT(section.conclusion.remarks.front(), HasSubstr("uniform in bf16-mixed on a place, "));
  EXPECT_THAT(section.figures.front().note, HasSubstr("faster and on fewer places."));
}

TEST(PlanSection, ShowsWhatDoesNotFit) {
  plan::Question question{.places = {1, 2}, .machine = free_machine(1, 1), .batch = 8};
  question.machine.memory_bytes = 1000;
  const page::Section section = section_of_plan({.answer = plan::answer(uniform(6), question)});
  EXPECT_THAT(page::to_text(section), HasSubstr("too many"));
}

TEST(PlanSection, SaysWhichBatchesWereNotMeasured) {
  plan::ModelProfile profile = uniform(6);
  profile.is_measured = true;
  const auto text = [&] {
    const plan::Question question{.places = {1, 2}, .batch = 128};
    return page::to_text(section_of_plan({.answer = plan::answer(profile, question)}));
  };
  for (plan::LayerCurves& layer : profile.layers) layer.forward = plan::CostCurve({{2, 2}});
  EXPECT_THAT(
      text(), HasSubstr("* Batches of 2 a place were measured, and time and memory of the "));
  for (plan::LayerCurves& layer : profile.layers)
    layer.forward = plan::CostCurve({{1, 1}, {128, 128}});
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("a place were measured")));
}

TEST(PlanSection, WritesTimesAndRatesForPeople) {
  plan::ModelProfile profile = uniform(6);
  for (plan::LayerCurves& layer : profile.layers)
    layer.forward = layer.backward = plan::CostCurve({{1, 1e-6}});
  const auto text = [&](double samples) {
    plan::Question question{.places = {1}, .batch = 128, .samples = samples};
    question.machine.price = 3;
    return page::to_text(section_of_plan({.answer = plan::answer(profile, question)}));
  };
  EXPECT_THAT(text(5e6), HasSubstr(" 83333 "));  // samples/s
  EXPECT_THAT(text(5e6), HasSubstr(" 60.0 s "));
  EXPECT_THAT(text(5e8), HasSubstr(" 100 min "));
  EXPECT_THAT(text(5e9), HasSubstr(" 16.7 h "));
  EXPECT_THAT(text(5e9), HasSubstr(" 10.1 to 27.5 h ")) << "nine of ten";
  EXPECT_THAT(text(5e9), HasSubstr(" 50.00 ")) << "hours by their price";
}

// One colour, one meaning.
TEST(PlanSection, HasTheColoursOfAProfile) {
  const auto timeline = timeline_of(made_answer().choices.front().prediction, "plan-step");
  const auto kinds = kinds_of_phases();
  ASSERT_EQ(timeline.kinds.size(), kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(timeline.kinds[i].name, kinds[i].name);
  for (const auto& box : timeline.boxes) {
    if (box.name == "layer0") {
      EXPECT_THAT(kinds[box.kind].name, ::testing::AnyOf("forward", "backward"));
    }
  }
}

RunProfile made_run() {
  LaneProfile waits{.thread = "main", .is_main = true};
  waits.of(StepPhase::kStages) = 50;
  LaneProfile computes{.thread = "stage-0"};
  computes.of(StepPhase::kForward) = 10;
  computes.of(StepPhase::kBackward) = 20;
  computes.of(StepPhase::kIdle) = 15;
  computes.of(StepPhase::kCommunication) = 5;
  return {.precision = "32",
      .ranks = {{.steps = 3,
          .step = 50,
          .lanes = {waits, computes},
          .timeline = {
              {.lane = 1, .phase = StepPhase::kForward, .name = "F", .begin = 0, .end = 10}}}}};
}

TEST(PlanSection, SetsAStepBesideThatOfARun) {
  PlanReport report{.answer = made_answer()};
  report.beside = made_run();
  const page::Section section = section_of_plan(report);
  const std::string text = page::to_text(section);
  EXPECT_THAT(text, ContainsRegex("forward .* 10.0"));
  EXPECT_THAT(text, ContainsRegex("exchange and waiting .* 20.0"));
  EXPECT_THAT(text, ContainsRegex("step .* 50.0"));
  ASSERT_EQ(section.timelines.size(), 2U);
  EXPECT_EQ(section.timelines[0].length, section.timelines[1].length) << "one scale";
  EXPECT_THAT(page::to_html({.title = "Plan", .sections = {section}, .environment = ""}),
      HasSubstr("as it was measured"));
  report.beside->ranks.front().timeline.clear();
  EXPECT_EQ(section_of_plan(report).timelines.size(), 1U);
}

TEST(PlanJson, HasEveryChoice) {
  const plan::Answer answer = made_answer();
  const auto object = nlohmann::json::parse(plan_json({.answer = answer}));
  ASSERT_EQ(object.at("choices").size(), answer.choices.size());
  EXPECT_EQ(object.at("pick"), *answer.pick);
  EXPECT_EQ(object.at("choices")[0].at("step_seconds"), answer.choices[0].prediction.seconds);
}

TEST(PlanJson, HasOfWhatWasTrainedTheHoursAndTheCostOfThat) {
  PlanReport report{.answer = made_answer()};
  const plan::Choice& first = report.answer.choices.front();
  report.confirmed = {{0, 2 * first.prediction.seconds}};
  const auto choice = nlohmann::json::parse(plan_json(report)).at("choices").at(0);
  EXPECT_DOUBLE_EQ(choice.at("hours"), 2 * first.hours);
  EXPECT_DOUBLE_EQ(choice.at("cost"), 2 * first.cost);
  EXPECT_EQ(choice.at("step_seconds"), 2 * first.prediction.seconds);
  EXPECT_EQ(choice.at("measured_seconds"), 2 * first.prediction.seconds);
  EXPECT_EQ(choice.at("predicted_seconds"), first.prediction.seconds);
  const page::Section section = section_of_plan(report);
  const auto cost_in = [&](const char* id) {
    const page::Table& table = *std::ranges::find(section.tables, id, &page::Table::id);
    const auto head =
        std::ranges::find(table.columns, "cost [unit of --price]", &page::Column::head);
    return table.rows.at(0).at(static_cast<std::size_t>(head - table.columns.begin()));
  };
  EXPECT_EQ(cost_in("plan-ways"), cost_in("plan-best"));
}

TEST(PlanJson, SaysWhatADecisionNeeds) {
  plan::Question question = made_answer().question;
  question.currency = "EUR";
  question.budget = 1e6;
  const PlanReport report{.answer = plan::answer(uniform(6), question)};
  const auto object = nlohmann::json::parse(plan_json(report));
  EXPECT_EQ(object.at("currency"), "EUR");
  EXPECT_EQ(object.at("samples"), 1000);
  EXPECT_EQ(object.at("assumed").size(), section_of_plan(report).conclusion.remarks.size());
  EXPECT_THAT(object.at("assumed").dump(), HasSubstr("a node for 3 EUR an hour; links"));
  EXPECT_THAT(object.at("assumed").dump(), HasSubstr("A cost is hours times price"));
  const auto& choice = object.at("choices").at(0);
  EXPECT_EQ(choice.at("keeps_limits"), "surely");
  const page::Table best = section_of_plan(report).tables.front();
  EXPECT_EQ(std::ranges::count(best.columns, "limits kept", &page::Column::head), 1);
  EXPECT_LT(choice.at("least_hours"), choice.at("hours"));
  EXPECT_GT(choice.at("most_hours"), choice.at("hours"));
}

TEST(PlanSection, ComparesWhatIfAndConfirmsAndExplains) {
  PlanReport report{.answer = made_answer()};
  report.explains = true;
  report.scenarios.push_back(
      {"places=4", plan::answer(uniform(6), plan::changed(report.answer.question, "places=4"))});
  // The second is faster than was predicted.
  const auto seconds = [&](std::size_t i) { return report.answer.choices[i].prediction.seconds; };
  const double ratio =
      report.answer.choices[1].prediction.batch / report.answer.choices[0].prediction.batch;
  report.confirmed = {{0, seconds(0)}, {1, 0.5 * ratio * seconds(0)}};
  EXPECT_EQ(final_answer(report).pick, 1u);
  const page::Section section = section_of_plan(report);
  const std::string text = page::to_text(section);
  EXPECT_THAT(text, HasSubstr("places=4"));
  EXPECT_THAT(text, HasSubstr("It was the fastest of 2 that were trained"));
  EXPECT_THAT(text, ContainsRegex(" samples/s as trained here.* Predicted were "));
  EXPECT_THAT(text, HasSubstr("Where the time of a step goes"));
  EXPECT_EQ(section.timelines.size(), best_of_kinds(report.answer).size());
  const auto object = nlohmann::json::parse(plan_json(report));
  EXPECT_EQ(object.at("pick"), 1);
  EXPECT_THAT(object.at("verdict").get<std::string>(), HasSubstr("as trained here"));
  EXPECT_EQ(object.at("choices")[1].at("measured_seconds"), 0.5 * ratio * seconds(0));
  EXPECT_EQ(object.at("what_if")[0].at("change"), "places=4");
}

TEST(PlanSection, ShowsWhatFailuresLeave) {
  plan::Question question{.batch = 8, .failures = {.between = 3600, .snapshot = 5}};
  const std::string text =
      page::to_text(section_of_plan({.answer = plan::answer(uniform(6), question)}));
  EXPECT_THAT(text, HasSubstr("goodput"));
  EXPECT_THAT(text, HasSubstr("Snapshots every"));
}

TEST(WayFlags, AreThoseOfTrain) {
  const auto flags = [](const plan::Way& way) { return joined(train_flags_of(way, 64), " "); };
  EXPECT_EQ(flags({}), "--parallel serial --batch-size 64");
  EXPECT_EQ(flags({.replicas = 2, .sent_as = plan::SentAs::kBf16}),
      "--parallel ddp --nproc-per-node 2 --batch-size 32 --comm-hook bf16");
  EXPECT_EQ(flags({.replicas = 8, .replication = plan::Replication::kShards, .copies = 2}),
      "--parallel fsdp --nproc-per-node 8 --batch-size 8 --replicas 2");
  EXPECT_EQ(flags({.stages = 2, .micro_batches = 4}),
      "--parallel pp --places 2 --batch-size 64 --balance time --schedule 1f1b --chunks 4");
  EXPECT_EQ(flags({.replicas = 2, .stages = 2, .schedule = ScheduleKind::kSequential}),
      "--parallel ddp+mp --nproc-per-node 4 --stages 2 --batch-size 32 --balance time");
}

}  // namespace
}  // namespace lockstep::bench
