#include "bench/planning/plan_tables.h"

#include <algorithm>
#include <cmath>

#include "bench/statistics/estimate_text.h"
#include "bench/study/report_of.h"
#include "lockstep/core/error.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

using plan::Choice;
using plan::Use;

constexpr double kMega = 1e6;

std::string way_of(const Choice& choice) { return describe(choice.prediction.way); }

std::string step_of(const Choice& choice) { return milliseconds_text(choice.prediction.seconds); }

std::string interval_of(const Choice& choice) {
  const plan::Prediction& prediction = choice.prediction;
  return concat(milliseconds_text(prediction.least_seconds()), " to ",
      milliseconds_text(prediction.most_seconds()));
}

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

std::string time_of(const Choice& choice) {
  constexpr double kMinutes = 60, kSeconds = 3600;
  if (choice.hours * kMinutes < 2) return short_cell(choice.hours * kSeconds) + " s";
  if (choice.hours < 2) return short_cell(choice.hours * kMinutes) + " min";
  return short_cell(choice.hours) + " h";
}

std::string cost_of(const Choice& choice) { return ratio_text(choice.cost); }

bool asks_failures(const plan::Answer& answer) {
  const plan::Failures& failures = answer.question.failures;
  return failures.between > 0 || failures.interval > 0;
}

// Between snapshots; none where no failure asks for them.
std::string snapshots_of(const Choice& choice) {
  return choice.goodput.interval > 0 ? seconds_text(choice.goodput.interval) : kNone;
}

// A scenario's place in the table: the answer as it was asked comes first.
struct ScenarioRow {
  std::string text;
  const plan::Answer* answer;
  double base_rate;
};

const Choice* picked(const plan::Answer& answer) {
  return answer.pick ? &answer.choices[*answer.pick] : nullptr;
}

double picked_rate(const plan::Answer& answer) {
  const Choice* const choice = picked(answer);
  return choice != nullptr ? choice->prediction.samples_per_second() : 0;
}

std::string of_pick(const ScenarioRow& row, std::string (*text)(const Choice&)) {
  const Choice* const choice = picked(*row.answer);
  return choice != nullptr ? text(*choice) : kNone;
}

std::string machines_of(const Choice& choice) {
  return concat(choice.machine.nodes, " x ", choice.machine.places);
}

// A confirmed choice beside its prediction.
struct ConfirmedRow {
  const Choice* choice;
  double seconds;
};

}  // namespace

page::Table choices_table(const plan::Answer& answer) {
  TableOf<Choice> table("plan-ways", "Every way, the fastest first");
  table.name("way", way_of)
      .number("nodes", [](const Choice& choice) { return choice.machine.nodes; })
      .number("places", [](const Choice& choice) { return choice.machine.all_places(); })
      .number("batch",
          [](const Choice& choice) { return concat(std::lround(choice.prediction.batch)); })
      .number("step [ms]", step_of)
      .number("9 of 10 [ms]", interval_of)
      .number("samples/s", rate_of);
  if (answer.question.samples > 0) table.number("time", time_of);
  if (answer.question.machine.price > 0) table.number("cost", cost_of);
  table.number("speed-up", [](const Choice& choice) { return ratio_text(choice.speed_up); })
      .number("efficiency", [](const Choice& choice) { return percent_text(choice.efficiency); })
      .number("waiting",
          [](const Choice& choice) {
            return percent_text(choice.prediction.idle / choice.prediction.seconds);
          })
      .number(
          "exchange", [](const Choice& choice) { return share_of(choice, Use::kCommunication); })
      .number("optimizer", [](const Choice& choice) { return share_of(choice, Use::kOptimizer); })
      .number("memory a place [MB]", memory_of);
  if (asks_failures(answer)) {
    table.number("goodput", [](const Choice& choice) { return percent_text(choice.goodput.share); })
        .number("snapshot every [s]", snapshots_of);
  }
  return table
      .notes({"predicted, not measured; speed-up and efficiency are over one place, in samples a "
              "second; waiting, exchange and optimizer are shares of the busiest place's step; "
              "nine of "
              "ten trainings are expected within the interval"})
      .of(answer.choices);
}

page::Table impossible_table(const plan::Answer& answer) {
  return TableOf<plan::Impossible>("plan-impossible", "What is impossible")
      .name("way", &plan::Impossible::way)
      .name("why", &plan::Impossible::reason)
      .of(answer.impossible);
}

page::Table scenarios_table(const PlanReport& report) {
  std::vector<ScenarioRow> rows{{"as asked", &report.answer, picked_rate(report.answer)}};
  for (const ComparedScenario& each : report.scenarios)
    rows.push_back({each.text, &each.answer, picked_rate(report.answer)});
  TableOf<ScenarioRow> table("plan-what-if", "What if");
  table.name("change", &ScenarioRow::text)
      .name("takes", [](const ScenarioRow& row) { return of_pick(row, way_of); })
      .number("nodes x places", [](const ScenarioRow& row) { return of_pick(row, machines_of); })
      .number("step [ms]", [](const ScenarioRow& row) { return of_pick(row, step_of); })
      .number("samples/s", [](const ScenarioRow& row) { return of_pick(row, rate_of); })
      .number("over as asked", [](const ScenarioRow& row) -> std::string {
        const double rate = picked_rate(*row.answer);
        return rate > 0 && row.base_rate > 0 ? ratio_text(rate / row.base_rate) : kNone;
      });
  if (report.answer.question.samples > 0) {
    table.number("time", [](const ScenarioRow& row) { return of_pick(row, time_of); })
        .number("cost", [](const ScenarioRow& row) { return of_pick(row, cost_of); });
  }
  return table.of(rows);
}

page::Table confirmed_table(const PlanReport& report) {
  std::vector<ConfirmedRow> rows;
  for (const Confirmed& each : report.confirmed)
    rows.push_back({&report.answer.choices[each.choice], each.step_seconds});
  return TableOf<ConfirmedRow>("plan-confirmed", "Trained for some steps on this machine")
      .name("way", [](const ConfirmedRow& row) { return way_of(*row.choice); })
      .number("predicted [ms]", [](const ConfirmedRow& row) { return step_of(*row.choice); })
      .number(
          "measured [ms]", [](const ConfirmedRow& row) { return milliseconds_text(row.seconds); })
      .number("prediction off by",
          [](const ConfirmedRow& row) {
            return percent_text(row.choice->prediction.seconds / row.seconds - 1);
          })
      .of(rows);
}

page::Table explanation_table(const std::vector<const plan::Choice*>& choices) {
  TableOf<Choice> table("plan-explanation", "Where the time of a step goes [ms]");
  table.name("way", way_of);
  for (const auto& use : plan::names_of(Use{})) {
    table.number(std::string(use.name), [value = use.value](const Choice& choice) {
      return milliseconds_text(choice.prediction.of(value));
    });
  }
  return table
      .number(
          "waiting", [](const Choice& choice) { return milliseconds_text(choice.prediction.idle); })
      .number("step", step_of)
      .number("on the links",
          [](const Choice& choice) { return milliseconds_text(choice.prediction.communication); })
      .number("bubble", [](const Choice& choice) { return percent_text(choice.prediction.bubble); })
      .notes({"of the busiest place; what is on the links passes beside computing, unless a core "
              "moves it"})
      .of(choices);
}

std::vector<const plan::Choice*> best_of_kinds(const plan::Answer& answer) {
  std::vector<const Choice*> best;
  for (const Choice& choice : answer.choices) {
    const std::string kind = kind_of(choice.prediction.way);
    const bool is_there = std::any_of(best.begin(), best.end(),
        [&](const Choice* each) { return kind_of(each->prediction.way) == kind; });
    if (choice.fits() && !is_there) best.push_back(&choice);
  }
  return best;
}

}  // namespace lockstep::bench
