#include "bench/planning/plan_section.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bench/planning/plan_tables.h"
#include "bench/planning/way_flags.h"
#include "bench/statistics/estimate_text.h"
#include "bench/statistics/median.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/run/run_report.h"

namespace lockstep::bench {
namespace {

bool is_possible_here(const plan::Choice& choice, const MeasureRequest& request) {
  return choice.fits() && choice.machine.nodes == 1 &&
         choice.machine.places * request.cores_a_place <= request.cores;
}

}  // namespace

std::vector<Confirmed> confirm(const plan::Answer& answer, std::size_t most,
    const MeasureRequest& request, const CellPaths& paths,
    const std::function<void(const std::string&)>& say) {
  std::vector<Confirmed> confirmed;
  for (std::size_t i = 0; i < answer.choices.size() && confirmed.size() < most; ++i) {
    const plan::Choice& choice = answer.choices[i];
    if (!is_possible_here(choice, request)) continue;
    const plan::Prediction& prediction = choice.prediction;
    say(concat("confirming ", describe(prediction.way)));
    const std::vector<double> steps = plain_steps(request,
        {.name = concat("confirm-", i),
            .spreading = train_flags_of(prediction.way, prediction.batch),
            .places = choice.machine.places},
        paths);
    confirmed.push_back({i, median(steps)});
  }
  return confirmed;
}

std::optional<std::size_t> pick_of(
    const plan::Answer& answer, const std::vector<Confirmed>& confirmed) {
  if (confirmed.empty()) return answer.pick;
  const auto rate = [&](const Confirmed& each) {
    return answer.choices[each.choice].prediction.batch / each.step_seconds;
  };
  return std::max_element(confirmed.begin(), confirmed.end(),
      [&](const Confirmed& one, const Confirmed& other) { return rate(one) < rate(other); })
      ->choice;
}

namespace {

using plan::Use;

constexpr double kMilli = 1e-3;

struct UseRow {
  std::string use;
  double predicted, measured;  // seconds
};

double computing(const LaneProfile& lane) {
  return lane.of(StepPhase::kForward) + lane.of(StepPhase::kBackward);
}

// Of a pipeline's threads the main one only waits for the others.
const LaneProfile& busiest(const RankProfile& rank) {
  check(!rank.lanes.empty(), "plan: --beside: the profile has no threads");
  return *std::max_element(
      rank.lanes.begin(), rank.lanes.end(), [](const LaneProfile& one, const LaneProfile& other) {
        return computing(one) < computing(other);
      });
}

std::vector<UseRow> rows_of(const plan::Prediction& prediction, const RankProfile& rank) {
  const LaneProfile& lane = busiest(rank);
  const auto measured = [&](std::initializer_list<StepPhase> phases) {
    double sum = 0;
    for (const StepPhase phase : phases) sum += lane.of(phase);
    return sum * kMilli;
  };
  using P = StepPhase;
  return {{"input", prediction.of(Use::kInput), measured({P::kInput, P::kCopy})},
      {"forward", prediction.of(Use::kForward), measured({P::kForward})},
      {"backward", prediction.of(Use::kBackward), measured({P::kBackward})},
      {"exchange and waiting", prediction.of(Use::kCommunication) + prediction.idle,
          measured({P::kCommunication, P::kIdle, P::kStages})},
      {"optimizer", prediction.of(Use::kOptimizer), measured({P::kOptimizer})},
      {"other", prediction.of(Use::kRest), measured({P::kOther})},
      {"step", prediction.seconds, rank.step * kMilli}};
}

/// Sets a predicted step beside the step of a run's profile, use by use: of the busiest place, and
/// of the busiest thread of rank 0, both in milliseconds.
page::Table beside_table(const plan::Prediction& prediction, const RunProfile& profile) {
  return TableOf<UseRow>("plan-beside", "The step as predicted, and as a run made it [ms]")
      .name("use", &UseRow::use)
      .number("predicted", [](const UseRow& row) { return milliseconds_text(row.predicted); })
      .number("measured", [](const UseRow& row) { return milliseconds_text(row.measured); })
      .number("difference",
          [](const UseRow& row) { return milliseconds_text(row.predicted - row.measured); })
      .notes({concat("predicted of the busiest place by ", describe(prediction.way),
          ", measured of the busiest thread of rank 0; a profile makes a step somewhat longer")})
      .of(rows_of(prediction, profile.ranks.front()));
}

/// Returns the pictures of both, the prediction's first, in the same scale. A profile without a
/// picture of its step leaves the prediction's alone.
std::vector<plot::Timeline> beside_timelines(
    const plan::Prediction& prediction, const RunProfile& profile) {
  std::vector<plot::Timeline> timelines{timeline_of(prediction, "plan-predicted")};
  const RankProfile& rank = profile.ranks.front();
  if (rank.timeline.empty()) return timelines;
  plot::Timeline measured = timeline_of(rank);
  measured.title = "The same step as it was measured, rank 0";
  timelines.push_back(std::move(measured));
  const double longest = std::max(timelines[0].length, timelines[1].length);
  for (plot::Timeline& timeline : timelines) timeline.length = longest;
  return timelines;
}

using plan::Choice;
using plan::Use;

plot::Figure front_figure(const plan::Answer& answer) {
  const bool has_money = answer.question.samples > 0 && answer.question.machine.price > 0;
  plot::Figure figure{.id = "plan-front",
      .title = has_money ? "Time against money" : "Rate against places",
      .x = {.label = has_money ? "hours" : "places"},
      .y = {.label = has_money ? "cost" : "samples/s"},
      .note = concat(
          "Each marker is a way; the line joins the best choices: nothing else is both faster ",
          has_money ? "and cheaper." : "and on fewer places.")};
  const auto point = [&](const Choice& choice) {
    return has_money ? plot::Point{choice.hours, choice.cost}
                     : plot::Point{static_cast<double>(choice.machine.all_places()),
                           choice.prediction.samples_per_second()};
  };
  plot::Series all{.name = "ways", .style = plot::Series::Style::kMarkers};
  for (const Choice& choice : answer.choices) {
    if (choice.fits()) all.points.push_back(point(choice));
  }
  plot::Series front{.name = "best choices", .style = plot::Series::Style::kDashed};
  for (const std::size_t index : pareto_front(answer))
    front.points.push_back(point(answer.choices[index]));
  figure.series = {all, front};
  return figure;
}

std::string title_of(const plan::Answer& answer) { return concat("Plan: ", answer.profile.model); }

// For batch sizes that were not measured.
std::string about_batches(const plan::Answer& answer) {
  const auto& points = answer.profile.layers.front().forward.points();
  const auto count = std::count_if(answer.choices.begin(), answer.choices.end(),
      [](const Choice& choice) { return choice.prediction.is_extrapolated; });
  if (!answer.profile.is_measured || points.empty() || count == 0) return "";
  const double least = points.front().batch, most = points.back().batch;
  return concat("Batches of ", least, least == most ? "" : concat(" to ", most),
      " a place were measured, and time and memory of the ", count,
      count == 1 ? " way that has" : " ways that have",
      " others are extrapolated: --measure-batches measures them.");
}

std::vector<std::string> remarks_of(const PlanReport& report) {
  const plan::Answer& answer = report.answer;
  const plan::ModelProfile& profile = answer.profile;
  std::vector<std::string> remarks{
      concat("The costs are those of ", profile.model, " in ",
          profile.precision == "32" ? "float32" : profile.precision, " on ", profile.device,
          profile.is_measured ? ", measured: " : ", not measured: ", profile.source, "."),
      concat("Links: ", text_of(answer.question.machine.within), " within a node, ",
          text_of(answer.question.machine.between), " between nodes.")};
  for (const std::string& more : {about_batches(answer), report.remark})
    if (!more.empty()) remarks.push_back(more);
  return remarks;
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

// In the colours of a profile.
StepPhase phase_of(Use use) {
  switch (use) {
    case Use::kInput:
      return StepPhase::kInput;
    case Use::kForward:
      return StepPhase::kForward;
    case Use::kBackward:
      return StepPhase::kBackward;
    case Use::kCommunication:
      return StepPhase::kCommunication;
    case Use::kOptimizer:
      return StepPhase::kOptimizer;
    case Use::kRest:
      break;
  }
  return StepPhase::kOther;
}

}  // namespace

plot::Timeline timeline_of(const plan::Prediction& prediction, const std::string& id) {
  plot::Timeline timeline{.id = id,
      .title = concat("One step of ", describe(prediction.way)),
      .unit = "milliseconds",
      .length = 1e3 * prediction.seconds,
      .rows = prediction.lanes,
      .kinds = {}};
  timeline.kinds = kinds_of_phases();
  for (const plan::TimedTask& task : prediction.tasks) {
    if (task.end <= task.start) continue;
    timeline.boxes.push_back({.row = task.lane,
        .kind = static_cast<std::size_t>(phase_of(task.use)),
        .begin = 1e3 * task.start,
        .end = 1e3 * task.end,
        .name = task.name});
  }
  return timeline;
}

// What was measured overrules what was predicted.
std::string verdict_of(const PlanReport& report) {
  if (report.confirmed.empty()) return plan::verdict_of(report.answer);
  plan::Answer confirmed = report.answer;
  confirmed.pick = pick_of(report.answer, report.confirmed);
  const auto measured = std::find_if(report.confirmed.begin(), report.confirmed.end(),
      [&](const Confirmed& each) { return each.choice == confirmed.pick; });
  return concat(plan::verdict_of(confirmed, measured->step_seconds), " It was the fastest of ",
      report.confirmed.size(), " that were trained for some steps here.");
}

page::Section section_of_plan(const PlanReport& report) {
  const plan::Answer& answer = report.answer;
  page::Section section{.title = title_of(answer),
      .question = "Which way of spreading this training pays?",
      .conclusion = {.answer = verdict_of(report), .remarks = remarks_of(report)}};
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
