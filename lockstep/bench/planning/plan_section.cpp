#include "lockstep/bench/planning/plan_section.h"

#include <cmath>

#include "lockstep/bench/statistics/estimate_text.h"
#include "lockstep/bench/study/table_of.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plan::Choice;
using plan::Use;

constexpr double kMega = 1e6;

std::string way_of(const Choice& choice) { return describe(choice.prediction.way); }

std::string step_of(const Choice& choice) { return milliseconds_text(choice.prediction.seconds); }

std::string rate_of(const Choice& choice) {
  return short_cell(choice.prediction.samples_per_second());
}

std::string share_of(const Choice& choice, Use use) {
  return percent_text(choice.prediction.of(use) / choice.prediction.seconds);
}

std::string memory_of(const Choice& choice) {
  const std::string megabytes = concat(std::lround(choice.prediction.memory_bytes / kMega));
  if (choice.fits()) return megabytes;
  return concat(megabytes, ", ", std::ceil(choice.lacking_bytes / kMega), " too many");
}

page::Table choices_table(const plan::Answer& answer) {
  TableOf<Choice> table("plan-ways", "Every way, the fastest first");
  table.name("way", way_of)
      .number("nodes", [](const Choice& choice) { return choice.machine.nodes; })
      .number("places", [](const Choice& choice) { return choice.machine.all_places(); })
      .number("batch",
          [](const Choice& choice) { return concat(std::lround(choice.prediction.batch)); })
      .number("step [ms]", step_of)
      .number("samples/s", rate_of)
      .number("speed-up", [](const Choice& choice) { return ratio_text(choice.speed_up); })
      .number("efficiency", [](const Choice& choice) { return percent_text(choice.efficiency); })
      .number("waiting",
          [](const Choice& choice) {
            return percent_text(choice.prediction.idle / choice.prediction.seconds);
          })
      .number(
          "exchange", [](const Choice& choice) { return share_of(choice, Use::kCommunication); })
      .number("optimizer", [](const Choice& choice) { return share_of(choice, Use::kOptimizer); })
      .number("memory a place [MB]", memory_of);
  if (answer.question.samples > 0)
    table.number("hours", [](const Choice& choice) { return short_cell(choice.hours); });
  if (answer.question.samples > 0 && answer.question.machine.price > 0)
    table.number("cost", [](const Choice& choice) { return short_cell(choice.cost); });
  return table
      .notes({"predicted, not measured; speed-up and efficiency are over one place, in samples a "
              "second; waiting, exchange and optimizer are shares of the busiest place's step"})
      .of(answer.choices);
}

page::Table impossible_table(const plan::Answer& answer) {
  return TableOf<plan::Impossible>("plan-impossible", "What is impossible")
      .name("way", &plan::Impossible::way)
      .name("why", &plan::Impossible::reason)
      .of(answer.impossible);
}

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

plot::Timeline timeline_of(const Choice& choice) {
  const plan::Prediction& prediction = choice.prediction;
  plot::Timeline timeline{.id = "plan-step",
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

std::vector<std::string> remarks_of(const plan::Answer& answer) {
  const plan::ModelProfile& profile = answer.profile;
  return {concat("The costs are those of ", profile.model, " in ", profile.precision, " on ",
              profile.device,
              profile.is_measured ? ", measured: " : ", not measured: ", profile.source, "."),
      concat("Links: ", text_of(answer.question.machine.within), " within a node, ",
          text_of(answer.question.machine.between), " between nodes.")};
}

}  // namespace

page::Section section_of_plan(const plan::Answer& answer) {
  page::Section section{.title = concat("Plan: ", answer.profile.model),
      .question = "Which way of spreading this training pays?",
      .conclusion = {.answer = verdict_of(answer), .remarks = remarks_of(answer)}};
  if (!answer.choices.empty()) {
    section.tables.push_back(choices_table(answer));
    section.figures.push_back(front_figure(answer));
  }
  if (!answer.impossible.empty()) section.tables.push_back(impossible_table(answer));
  if (answer.pick) section.timelines.push_back(timeline_of(answer.choices[*answer.pick]));
  return section;
}

}  // namespace lockstep::bench
