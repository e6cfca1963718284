#include "lockstep/bench/planning/plan_section.h"

#include <cmath>

#include "lockstep/bench/planning/beside_run.h"
#include "lockstep/bench/planning/plan_tables.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plan::Choice;
using plan::Use;

plot::Figure front_figure(const plan::Answer& answer) {
  const bool has_money = answer.question.samples > 0 && answer.question.machine.price > 0;
  plot::Figure figure{.id = "plan-front",
      .title = has_money ? "Time against money" : "Rate against places",
      .x = {.label = has_money ? "hours" : "places"},
      .y = {.label = has_money ? "cost" : "samples/s"},
      .note = "Each marker is a way; the line joins those that no other beats in both."};
  const auto point = [&](const Choice& choice) {
    return has_money ? plot::Point{choice.hours, choice.cost}
                     : plot::Point{static_cast<double>(choice.machine.all_places()),
                           choice.prediction.samples_per_second()};
  };
  plot::Series all{.name = "ways", .style = plot::Series::Style::kMarkers};
  for (const Choice& choice : answer.choices) {
    if (choice.fits()) all.points.push_back(point(choice));
  }
  plot::Series front{.name = "not beaten", .style = plot::Series::Style::kDashed};
  for (const std::size_t index : pareto_front(answer))
    front.points.push_back(point(answer.choices[index]));
  figure.series = {all, front};
  return figure;
}

std::vector<std::string> remarks_of(const plan::Answer& answer) {
  const plan::ModelProfile& profile = answer.profile;
  return {concat("The costs are those of ", profile.model, " in ", profile.precision, " on ",
              profile.device,
              profile.is_measured ? ", measured: " : ", not measured: ", profile.source, "."),
      concat("Links: ", text_of(answer.question.machine.within), " within a node, ",
          text_of(answer.question.machine.between), " between nodes.")};
}

std::string title_of(const plan::Answer& answer) { return concat("Plan: ", answer.profile.model); }

// What was measured overrules what was predicted.
std::string answer_text(const PlanReport& report) {
  if (report.confirmed.empty()) return verdict_of(report.answer);
  plan::Answer confirmed = report.answer;
  confirmed.pick = pick_of(report.answer, report.confirmed);
  return concat(verdict_of(confirmed), " It was the fastest of ", report.confirmed.size(),
      " that were trained for some steps here.");
}

void add_steps(const PlanReport& report, page::Section& section) {
  const auto pick = pick_of(report.answer, report.confirmed);
  if (!pick) return;
  const Choice& picked = report.answer.choices[*pick];
  if (report.beside) {
    section.tables.push_back(beside_table(picked.prediction, *report.beside));
    section.timelines = beside_timelines(picked.prediction, *report.beside);
  } else {
    section.timelines.push_back(timeline_of(picked.prediction, "plan-step"));
  }
  if (!report.explains) return;
  const auto best = best_of_kinds(report.answer);
  section.tables.push_back(explanation_table(best));
  for (const Choice* const choice : best) {
    if (choice != &picked)
      section.timelines.push_back(
          timeline_of(choice->prediction, "plan-step-" + kind_of(choice->prediction.way)));
  }
}

}  // namespace

plot::Timeline timeline_of(const plan::Prediction& prediction, const std::string& id) {
  plot::Timeline timeline{.id = id,
      .title = concat("One step of ", describe(prediction.way)),
      .unit = "milliseconds",
      .length = 1e3 * prediction.seconds,
      .rows = prediction.lanes,
      .kinds = {}};
  for (const auto& use : plan::names_of(Use{}))
    timeline.kinds.push_back({std::string(use.name), use.value == Use::kRest});
  for (const plan::TimedTask& task : prediction.tasks) {
    if (task.end <= task.start) continue;
    timeline.boxes.push_back({.row = task.lane,
        .kind = static_cast<std::size_t>(task.use),
        .begin = 1e3 * task.start,
        .end = 1e3 * task.end,
        .name = task.name});
  }
  return timeline;
}

page::Section section_of_plan(const PlanReport& report) {
  const plan::Answer& answer = report.answer;
  page::Section section{.title = title_of(answer),
      .question = "Which way of spreading this training pays?",
      .conclusion = {.answer = answer_text(report), .remarks = remarks_of(answer)}};
  if (!answer.choices.empty()) {
    section.tables.push_back(choices_table(answer));
    section.figures.push_back(front_figure(answer));
  }
  if (!report.confirmed.empty()) section.tables.push_back(confirmed_table(report));
  if (!report.scenarios.empty()) section.tables.push_back(scenarios_table(report));
  if (!answer.impossible.empty()) section.tables.push_back(impossible_table(answer));
  add_steps(report, section);
  return section;
}

}  // namespace lockstep::bench
