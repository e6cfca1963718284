#include "bench/planning/plan_section.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics/estimate_text.h"
#include "bench/statistics/median.h"
#include "bench/study/report_of.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/run/run_report.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

using plan::Choice;
using plan::Use;
using Json = nlohmann::ordered_json;

constexpr double kMega = 1e6;

std::string cost_label(const plan::Answer& answer) {
  const std::string& currency = answer.question.currency;
  return concat("cost [", currency.empty() ? "unit of --price" : currency, "]");
}

constexpr const char* kAllWays = "plan-ways";
constexpr const char* kPicked = " *";
constexpr const char* kOfPicked = "; * is the one to take";

std::string way_of(const Choice& choice) { return describe(choice.prediction.way); }

// On its machine.
std::string there_of(const Choice& choice) { return describe(choice); }

std::string step_of(const Choice& choice) { return milliseconds_text(choice.prediction.seconds); }

// What was trained has none.
std::string interval_of(const Choice& choice) {
  const plan::Prediction& prediction = choice.prediction;
  if (choice.is_trained()) return kNone;
  return concat(milliseconds_text(prediction.least_seconds()), " to ",
      milliseconds_text(prediction.most_seconds()));
}

std::string rate_of(const Choice& choice) {
  return seconds_text(choice.prediction.samples_per_second());
}

std::string share_of(const Choice& choice, Use use) {
  return percent_text(choice.prediction.of(use) / choice.prediction.seconds);
}

std::string bytes_text(double bytes) {
  constexpr double kGiga = 1e9;
  return bytes >= kGiga ? seconds_text(bytes / kGiga) + " GB"
                        : concat(std::lround(bytes / kMega), " MB");
}

std::string memory_of(const Choice& choice) {
  const std::string bytes = bytes_text(choice.prediction.memory_bytes);
  return choice.fits() ? bytes : concat(bytes, ", ", bytes_text(choice.lacking_bytes), " too many");
}

std::string time_of(const Choice& choice) {
  const plan::UnitOfTime unit = plan::unit_of_time(choice.hours);
  return concat(seconds_text(choice.hours * unit.an_hour), " ", unit.symbol);
}

std::string times_of(const Choice& choice) {
  const plan::UnitOfTime unit = plan::unit_of_time(choice.hours);
  const auto text = [&](double times) { return seconds_text(times * choice.hours * unit.an_hour); };
  return choice.is_trained() ? kNone
                             : concat(text(choice.least_times()), " to ", text(choice.most_times()),
                                   " ", unit.symbol);
}

// Without a price, as a scenario alone may have one, there is none.
std::string cost_of(const Choice& choice) {
  return choice.machine.all_price() > 0 ? ratio_text(choice.cost) : kNone;
}

bool has_price(const plan::Answer& answer) { return answer.question.machine.all_price() > 0; }

bool has_devices(const plan::Answer& answer) { return !answer.question.machine.device.empty(); }

bool has_limits(const plan::Question& asked) { return asked.within_hours > 0 || asked.budget > 0; }

// Whether a choice keeps to the time and the money that were asked for.
std::string limits_kept_by(const Choice& choice, const plan::Question& asked) {
  if (plan::is_sure(choice, asked)) return "surely";
  return plan::is_allowed(choice, asked) ? "probably" : "no";
}

bool compares_devices(const plan::Answer& answer) {
  return std::ranges::any_of(answer.choices, [&](const Choice& each) {
    return each.machine.device != answer.choices.front().machine.device;
  });
}

bool has_trained(const plan::Answer& answer) {
  return std::ranges::any_of(answer.choices, &Choice::is_trained);
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

// What a function says of the choice that a scenario picks.
auto of_pick(std::string (*text)(const Choice&)) {
  return [text](const ScenarioRow& row) {
    const Choice* const choice = picked(*row.answer);
    return choice != nullptr ? text(*choice) : kNone;
  };
}

std::string machines_of(const Choice& choice) {
  return concat(choice.machine.nodes, " x ", choice.machine.places);
}

// A confirmed choice beside its prediction.
struct ConfirmedRow {
  const Choice* choice;
  double seconds;
};

TableOf<Choice> named_ways(const plan::Answer& answer, const char* id, std::string title) {
  TableOf<Choice> table(id, std::move(title));
  table.name("way", [pick = picked(answer)](const Choice& choice) {
    return &choice == pick ? way_of(choice) + kPicked : way_of(choice);
  });
  if (has_devices(answer))
    table.name("device", [](const Choice& choice) { return choice.machine.device; });
  return table.number("nodes", [](const Choice& choice) { return choice.machine.nodes; })
      .number("places", [](const Choice& choice) { return choice.machine.all_places(); });
}

void add_failures(const plan::Answer& answer, TableOf<Choice>& table) {
  const plan::Failures& failures = answer.question.failures;
  if (failures.between == 0 && failures.interval == 0) return;
  table.number("goodput", [](const Choice& choice) { return percent_text(choice.goodput.share); })
      .number("snapshot every [s]", snapshots_of);
}

// With how sure it is of what is asked for.
page::Table shown_table(const plan::Answer& answer) {
  std::vector<const Choice*> shown;
  for (const std::size_t number : shown_choices(answer)) shown.push_back(&answer.choices[number]);
  const std::size_t all = answer.choices.size();
  TableOf<Choice> table = named_ways(answer, "plan-best",
      shown.size() == all ? (has_trained(answer) ? "In the order of the plan" : "The fastest first")
                          : concat("Of ", all, " ways the best on each machine",
                                compares_devices(answer) ? "" : " and the fastest of each kind"));
  table.number("step [ms]", step_of).number("samples/s", rate_of);
  if (answer.question.samples > 0)
    table.number("time", time_of).number("9 of 10", times_of);
  else
    table.number("9 of 10 [ms]", interval_of);
  if (has_price(answer)) table.number(cost_label(answer), cost_of);
  if (has_limits(answer.question))
    table.number("limits kept",
        [&asked = answer.question](const Choice& choice) { return limits_kept_by(choice, asked); });
  table.number("speed-up", &Choice::speed_up, ratio_text).number("memory a place", memory_of);
  add_failures(answer, table);
  return table
      .notes({concat(std::llround(answer.question.batch), " samples a step",
                  answer.question.is_batch_of_place ? " on each place" : "",
                  has_trained(answer)
                      ? "; predicted where there is \"9 of 10\", else trained here; nine of ten"
                      : "; predicted, not measured; nine of ten",
                  " trainings are expected within \"9 of "
                  "10\"; speed-up is over one place of the same kind, in samples a second",
                  answer.pick ? kOfPicked : ""),
          shown.size() == all ? "" : "the page of --output and --json have all ways"})
      .of(shown);
}

page::Table choices_table(const plan::Answer& answer) {
  TableOf<Choice> table = named_ways(answer, kAllWays,
      concat(
          "Every way, ", has_trained(answer) ? "in the order of the plan" : "the fastest first"));
  table.number("step [ms]", step_of)
      .number("9 of 10 [ms]", interval_of)
      .number("samples/s", rate_of);
  if (answer.question.samples > 0) table.number("time", time_of);
  if (has_price(answer)) table.number(cost_label(answer), cost_of);
  table.number("speed-up", &Choice::speed_up, ratio_text)
      .number("waiting",
          [](const Choice& choice) {
            return percent_text(choice.prediction.idle / choice.prediction.seconds);
          })
      .number(
          "exchange", [](const Choice& choice) { return share_of(choice, Use::kCommunication); })
      .number("optimizer", [](const Choice& choice) { return share_of(choice, Use::kOptimizer); })
      .number("memory a place", memory_of);
  add_failures(answer, table);
  return table
      .notes({concat(has_trained(answer) ? "predicted where there is \"9 of 10\", else trained here"
                                         : "predicted, not measured",
          "; waiting, exchange and optimizer are shares of the busiest place's step",
          answer.pick ? kOfPicked : "")})
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
  table.name("change", &ScenarioRow::text).name("takes", of_pick(way_of));
  if (has_devices(report.answer))
    table.name("device", of_pick([](const Choice& choice) { return choice.machine.device; }));
  table.number("nodes x places", of_pick(machines_of))
      .number("step [ms]", of_pick(step_of))
      .number("samples/s", of_pick(rate_of))
      .number("over as asked", [](const ScenarioRow& row) -> std::string {
        const double rate = picked_rate(*row.answer);
        return rate > 0 && row.base_rate > 0 ? ratio_text(rate / row.base_rate) : kNone;
      });
  if (report.answer.question.samples > 0) table.number("time", of_pick(time_of));
  if (std::ranges::any_of(rows, [](const ScenarioRow& row) { return has_price(*row.answer); }))
    table.number(cost_label(report.answer), of_pick(cost_of));
  return table.of(rows);
}

page::Table confirmed_table(const PlanReport& report) {
  std::vector<ConfirmedRow> rows;
  for (const plan::TrainedStep& each : report.confirmed)
    rows.push_back({&report.answer.choices[each.choice], each.seconds});
  return TableOf<ConfirmedRow>("plan-confirmed", "Trained for some steps on this machine")
      .name("way", [](const ConfirmedRow& row) { return way_of(*row.choice); })
      .number("predicted [ms]", [](const ConfirmedRow& row) { return step_of(*row.choice); })
      .number("measured [ms]", &ConfirmedRow::seconds, milliseconds_text)
      .number(
          "prediction off by",
          [](const ConfirmedRow& row) { return row.choice->prediction.seconds / row.seconds - 1; },
          percent_text)
      .of(rows);
}

page::Table explanation_table(const std::vector<const plan::Choice*>& choices) {
  TableOf<Choice> table("plan-explanation", "Where the time of a step goes [ms]");
  table.name("way", there_of);
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

bool is_possible_here(const plan::Choice& choice, const MeasureRequest& request) {
  return choice.fits() && choice.machine.nodes == 1 &&
         choice.machine.places * request.cores_a_place <= request.cores;
}

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
  return *std::ranges::max_element(
      rank.lanes, [](const LaneProfile& one, const LaneProfile& other) {
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

// Of the busiest place, and of the busiest thread of rank 0.
page::Table beside_table(const plan::Prediction& prediction, const RunProfile& profile) {
  return TableOf<UseRow>("plan-beside", "The step as predicted, and as a run made it [ms]")
      .name("use", &UseRow::use)
      .number("predicted", &UseRow::predicted, milliseconds_text)
      .number("measured", &UseRow::measured, milliseconds_text)
      .number(
          "difference", [](const UseRow& row) { return row.predicted - row.measured; },
          milliseconds_text)
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

plot::Figure front_figure(const plan::Answer& answer) {
  const std::vector<std::size_t> best = pareto_front(answer);
  std::vector<std::size_t> shown = shown_choices(answer);
  std::ranges::copy_if(best, std::back_inserter(shown),
      [&](std::size_t number) { return std::ranges::find(shown, number) == shown.end(); });
  const bool has_money = answer.question.samples > 0 && has_price(answer);
  constexpr auto kMarkers = plot::Series::Style::kMarkers;
  plot::Figure figure{.id = "plan-front",
      .title = has_money ? "Time against money" : "Rate against places",
      .x = {.label = has_money ? "hours" : "places"},
      .y = {.label = has_money ? cost_label(answer) : "samples/s"},
      .note = concat(
          "Each marker is a way; the line joins the best choices: nothing else is both faster ",
          has_money ? "and cheaper." : "and on fewer places.")};
  const auto point = [&](const Choice& choice) {
    return has_money ? plot::Point{choice.hours, choice.cost}
                     : plot::Point{static_cast<double>(choice.machine.all_places()),
                           choice.prediction.samples_per_second()};
  };
  for (const std::size_t number : shown) {
    const Choice& choice = answer.choices[number];
    if (!choice.fits()) continue;
    const std::string name = has_devices(answer) ? choice.machine.device : "ways";
    const auto known = std::ranges::find(figure.series, name, &plot::Series::name);
    plot::Series& series =
        known != figure.series.end()
            ? *known
            : figure.series.emplace_back(plot::Series{.name = name, .style = kMarkers});
    series.points.push_back(point(choice));
  }
  plot::Series front{.name = "best choices", .style = plot::Series::Style::kDashed};
  for (const std::size_t number : best) front.points.push_back(point(answer.choices[number]));
  figure.series.push_back(front);
  return figure;
}

std::string title_of(const plan::Answer& answer) { return concat("Plan: ", answer.profile.model); }

// For batch sizes that were not measured.
std::string about_batches(const plan::Answer& answer) {
  const auto& points = answer.profile.layers.front().forward.points();
  const auto count = std::ranges::count_if(
      answer.choices, [](const Choice& choice) { return choice.prediction.is_extrapolated(); });
  if (!answer.profile.is_measured || points.empty() || count == 0) return "";
  const double least = points.front().batch, most = points.back().batch;
  return concat("Batches of ", least, least == most ? "" : concat(" to ", most),
      " a place were measured, and time and memory of the ", count,
      count == 1 ? " way that has" : " ways that have",
      " others are extrapolated: a profile measured with --measure-batches has them.");
}

std::string about_costs(const plan::ModelProfile& profile) {
  const char* certainty = profile.is_measured    ? ", measured: "
                          : profile.is_estimated ? ", estimated: "
                                                 : ", not measured: ";
  return concat("Times and memory are those of ", profile.model, " in ",
      profile.precision == "32" ? "float32" : profile.precision, " on ", profile.device, certainty,
      profile.source, ".");
}

std::string words_of_link(const plan::Link& link) {
  if (link.bytes_per_second == 0 && link.measured.is_free()) return "no limit";
  constexpr double kGigabit = 1e9 / 8, kMicro = 1e-6;
  const auto plain = [](double number) { return std::round(number * 100) / 100; };
  return concat(plain(link.bytes_per_second / kGigabit), " Gbit/s and ",
      plain(link.latency / kMicro), " us a message", link.measured.is_free() ? "" : " as measured");
}

// What is said of a place, and of its links.
std::string about_machine(const PlannedMachine& planned, const std::string& currency) {
  const auto& [profile, machine] = planned;
  const bool knows_within = profile.knows_within || machine.within.bytes_per_second > 0;
  std::vector<std::string> parts;
  if (machine.memory_bytes > 0) parts.push_back(bytes_text(machine.memory_bytes) + " of memory");
  const auto price = [&](double amount) {
    return concat(amount, currency.empty() ? "" : " ", currency, " an hour");
  };
  if (machine.place_price > 0) parts.push_back(price(machine.place_price));
  if (machine.price > 0) parts.push_back("a node for " + price(machine.price));
  std::string text = concat(machine.device.empty() ? "A place" : machine.device, ": ",
      joined(parts), parts.empty() ? "" : "; ", "links of ",
      knows_within ? words_of_link(machine.within) : "an unknown rate", " within a node, ",
      words_of_link(machine.between), " between nodes.");
  if (!profile.knows_within && knows_within)
    text +=
        " The profile is of one place alone: that several of a node do not slow each other down is "
        "assumed, and their intervals are wider for it.";
  return text;
}

std::string about_peer(const plan::Answer& answer) {
  const plan::Way& settings = answer.question.ways.settings;
  if (!settings.is_pytorch) return "";
  return concat(
      "dp is PyTorch's DataParallel: in each step it copies the parameters to all "
      "places, and outputs and gradients to the first; the forward of a replica keeps "
      "Python's lock for ",
      settings.lock_seconds > 0 ? concat(seconds_text(settings.lock_seconds / kMilli), " ms")
                                : std::string("as long as that of one sample takes"),
      ". That it copies a batch to the places is not counted.");
}

std::string about_brackets(const plan::Answer& answer) {
  if (!answer.pick) return "";
  const plan::Question& asked = answer.question;
  return concat("Nine of ten trainings are expected within the numbers in brackets",
      has_limits(asked) ? "; surely means in 19 of 20" : "", ".");
}

std::string about_prices(const plan::Answer& answer) {
  return has_price(answer) ? "A cost is hours times price, and as unsure as the hours. Storage, "
                             "traffic, starting, evaluating and waiting for data that come late "
                             "are not in it."
                           : "";
}

std::vector<std::string> remarks_of(const PlanReport& report) {
  const plan::Answer& answer = report.answer;
  std::vector<PlannedMachine> machines = report.machines;
  if (machines.empty()) machines.push_back({answer.profile, answer.question.machine});
  std::vector<std::string> remarks;
  for (const PlannedMachine& planned : machines) {
    remarks.push_back(about_costs(planned.profile));
    remarks.push_back(about_machine(planned, answer.question.currency));
  }
  for (const std::string& more : {about_brackets(answer), about_prices(answer),
           about_batches(answer), about_peer(answer), report.remark})
    if (!more.empty()) remarks.push_back(more);
  return remarks;
}

plot::Timeline timeline_of(const Choice& choice, const std::string& id) {
  plot::Timeline timeline = bench::timeline_of(choice.prediction, id);
  timeline.title = "One step of " + there_of(choice);
  return timeline;
}

void add_steps(const PlanReport& report, page::Section& section) {
  const auto pick = final_answer(report).pick;
  if (!pick) return;
  const Choice& picked = report.answer.choices[*pick];
  if (report.beside) {
    section.tables.push_back(beside_table(picked.prediction, *report.beside));
    section.timelines = beside_timelines(picked.prediction, *report.beside);
  } else {
    section.timelines.push_back(timeline_of(picked, "plan-step"));
  }
  if (!report.explains) return;
  const auto best = best_of_kinds(report.answer);
  section.tables.push_back(explanation_table(best));
  for (const Choice* const choice : best) {
    if (choice != &picked)
      section.timelines.push_back(
          timeline_of(*choice, "plan-step-" + kind_of(choice->prediction.way)));
  }
}

// In the colours of a profile; in the order of the uses.
constexpr std::array<StepPhase, plan::kUses> kPhases{StepPhase::kInput, StepPhase::kForward,
    StepPhase::kBackward, StepPhase::kCommunication, StepPhase::kOptimizer, StepPhase::kOther};

Json choice_json(const plan::Choice& choice, const plan::Question& asked) {
  const plan::Prediction& prediction = choice.prediction;
  Json object = {{"way", describe(prediction.way)}, {"parallel", kind_of(prediction.way)},
      {"replicas", prediction.way.replicas}, {"stages", prediction.way.stages},
      {"device", choice.machine.device}, {"nodes", choice.machine.nodes},
      {"places", choice.machine.all_places()}, {"batch", prediction.batch},
      {"step_seconds", prediction.seconds}, {"least_seconds", prediction.least_seconds()},
      {"most_seconds", prediction.most_seconds()},
      {"samples_per_s", prediction.samples_per_second()}, {"speed_up", choice.speed_up},
      {"efficiency", choice.efficiency}, {"idle_seconds", prediction.idle},
      {"bubble", prediction.bubble}, {"memory_bytes", prediction.memory_bytes},
      {"lacking_bytes", choice.lacking_bytes}, {"goodput", choice.goodput.share}};
  for (const auto& use : plan::names_of(plan::Use{}))
    object[std::string(use.name) + "_seconds"] = prediction.of(use.value);
  if (choice.hours > 0) {
    object["hours"] = choice.hours;
    object["least_hours"] = choice.least_times() * choice.hours;
    object["most_hours"] = choice.most_times() * choice.hours;
  }
  if (choice.cost > 0) object["cost"] = choice.cost;
  if (has_limits(asked)) object["keeps_limits"] = limits_kept_by(choice, asked);
  if (choice.is_trained()) {
    object["predicted_seconds"] = choice.predicted_seconds;
    object["measured_seconds"] = prediction.seconds;
  }
  return object;
}

std::string devices_of(const PlanReport& report) {
  std::vector<std::string> names;
  for (const PlannedMachine& planned : report.machines) names.push_back(planned.profile.device);
  return names.empty() ? report.answer.profile.device : joined(names, ", ");
}

Json pick_json(std::optional<std::size_t> pick) { return pick ? Json(*pick) : Json(nullptr); }

Json scenario_json(const ComparedScenario& scenario) {
  const plan::Answer& answer = scenario.answer;
  return {{"change", scenario.text}, {"verdict", verdict_of(answer)},
      {"choice", answer.pick ? choice_json(answer.choices[*answer.pick], answer.question)
                             : Json(nullptr)}};
}

}  // namespace

std::vector<const plan::Choice*> best_of_kinds(const plan::Answer& answer) {
  std::vector<const Choice*> best;
  for (const Choice& choice : answer.choices) {
    const std::string kind = kind_of(choice.prediction.way);
    const bool is_there = std::ranges::any_of(
        best, [&](const Choice* each) { return kind_of(each->prediction.way) == kind; });
    if (choice.fits() && !is_there) best.push_back(&choice);
  }
  return best;
}

std::vector<std::size_t> confirmable(const plan::Answer& answer, const MeasureRequest& request) {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t number) {
    if (std::ranges::find(order, number) == order.end() &&
        is_possible_here(answer.choices[number], request))
      order.push_back(number);
  };
  if (answer.pick) add(*answer.pick);
  for (const std::size_t number : answer.equals) add(number);
  for (std::size_t number = 0; number < answer.choices.size(); ++number) add(number);
  return order;
}

std::vector<plan::TrainedStep> confirm(const plan::Answer& answer, std::size_t most,
    const MeasureRequest& request, const CellPaths& paths,
    const std::function<void(const std::string&)>& say) {
  std::vector<plan::TrainedStep> confirmed;
  for (const std::size_t number : confirmable(answer, request)) {
    if (confirmed.size() == most) break;
    const plan::Choice& choice = answer.choices[number];
    const plan::Prediction& prediction = choice.prediction;
    say(concat("confirming ", describe(prediction.way)));
    const Pace pace{.step = plan::CostCurve({{prediction.batch, prediction.seconds}})};
    const auto batch = static_cast<int>(prediction.batch);
    const std::vector<double> steps = plain_steps(paced(request, pace, batch),
        {.name = concat("confirm-", number),
            .spreading = train_flags_of(prediction.way, prediction.batch),
            .places = choice.machine.places},
        paths);
    confirmed.push_back({number, median(steps)});
  }
  return confirmed;
}

plan::Answer final_answer(const PlanReport& report) {
  return plan::with_trained(report.answer, report.confirmed);
}

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
        .kind = static_cast<std::size_t>(kPhases[static_cast<std::size_t>(task.use)]),
        .begin = 1e3 * task.start,
        .end = 1e3 * task.end,
        .name = task.name});
  }
  return timeline;
}

std::string verdict_of(const PlanReport& report) {
  const bool is_offered = report.offered > 1 && report.confirmed.empty();
  return concat(plan::verdict_of(final_answer(report)),
      is_offered ? concat(" --confirm ", report.offered,
                       " trains what cannot be told apart for some steps, as far as this machine "
                       "can, and tells.")
                 : "");
}

std::vector<std::size_t> shown_choices(const plan::Answer& answer) {
  constexpr std::size_t kFew = 12;
  const bool is_of_one_device = !compares_devices(answer);
  std::set<std::size_t> shown;
  if (is_of_one_device) shown.insert(answer.equals.begin(), answer.equals.end());
  if (answer.pick) shown.insert(*answer.pick);
  for (const std::size_t number : plan::best_on_each_machine(answer)) shown.insert(number);
  std::set<std::string> kinds;
  for (std::size_t number = 0; number < answer.choices.size(); ++number) {
    const Choice& choice = answer.choices[number];
    const bool is_first_of_kind =
        is_of_one_device && choice.fits() && kinds.insert(kind_of(choice.prediction.way)).second;
    if (answer.choices.size() <= kFew || is_first_of_kind) shown.insert(number);
  }
  return {shown.begin(), shown.end()};
}

page::Section section_of_plan(const PlanReport& report) {
  const plan::Answer answer = final_answer(report);
  page::Section section{.title = title_of(answer),
      .question = "Which way of spreading this training pays?",
      .conclusion = {.answer = verdict_of(report), .remarks = remarks_of(report)}};
  if (!answer.choices.empty()) {
    section.tables.push_back(shown_table(answer));
    section.figures.push_back(front_figure(answer));
  }
  if (!report.confirmed.empty()) section.tables.push_back(confirmed_table(report));
  if (!report.scenarios.empty()) section.tables.push_back(scenarios_table(report));
  if (!answer.impossible.empty()) section.tables.push_back(impossible_table(answer));
  add_steps(report, section);
  if (!answer.choices.empty()) section.tables.push_back(choices_table(answer));
  return section;
}

std::string text_of_plan(const page::Section& section) {
  page::Section rest{.title = "",
      .question = "",
      .conclusion = {.answer = "", .remarks = section.conclusion.remarks},
      .tables = section.tables};
  std::erase_if(rest.tables, [](const page::Table& table) { return table.id == kAllWays; });
  return page::to_text(page::Section{.title = section.title,
             .question = "",
             .conclusion = {.answer = section.conclusion.answer}}) +
         page::to_text(rest);
}

page::Page page_of_plan(const page::Section& section) {
  page::Section ways{.title = "The ways that are worth a look", .question = ""};
  page::Section all{.title = "All ways", .question = ""};
  for (const page::Table& table : section.tables)
    (table.id == kAllWays ? all : ways).tables.push_back(table);
  page::Section pictures{.title = "Pictures",
      .question = "",
      .figures = section.figures,
      .timelines = section.timelines};
  page::Section assumed{.title = "What is assumed",
      .question = "",
      .conclusion = {.answer = "", .remarks = section.conclusion.remarks}};
  page::Page page{.title = section.title,
      .sections = {},
      .environment = "",
      .summary = section.conclusion.answer};
  for (page::Section* const each : {&ways, &pictures, &assumed, &all})
    if (!each->tables.empty() || !each->figures.empty() || !each->conclusion.remarks.empty())
      page.sections.push_back(std::move(*each));
  return page;
}

std::string plan_json(const PlanReport& report) {
  const plan::Answer answer = final_answer(report);
  Json choices = Json::array(), impossible = Json::array(), scenarios = Json::array();
  for (const plan::Choice& choice : answer.choices)
    choices.push_back(choice_json(choice, answer.question));
  for (const auto& [way, reason] : answer.impossible)
    impossible.push_back({{"way", way}, {"reason", reason}});
  for (const ComparedScenario& each : report.scenarios) scenarios.push_back(scenario_json(each));
  const Json object = {{"v", 1}, {"model", answer.profile.model},
      {"precision", answer.profile.precision}, {"device", devices_of(report)},
      {"samples", answer.question.samples}, {"currency", answer.question.currency},
      {"assumed", remarks_of(report)}, {"verdict", verdict_of(report)},
      {"pick", pick_json(answer.pick)}, {"equals", answer.equals}, {"choices", choices},
      {"impossible", impossible}, {"what_if", scenarios}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
