#include <nlohmann/json.hpp>

#include "bench/planning/plan_section.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json choice_json(const plan::Choice& choice) {
  const plan::Prediction& prediction = choice.prediction;
  Json object = {{"way", describe(prediction.way)}, {"parallel", kind_of(prediction.way)},
      {"replicas", prediction.way.replicas}, {"stages", prediction.way.stages},
      {"nodes", choice.machine.nodes}, {"places", choice.machine.all_places()},
      {"batch", prediction.batch}, {"step_seconds", prediction.seconds},
      {"least_seconds", prediction.least_seconds()}, {"most_seconds", prediction.most_seconds()},
      {"samples_per_s", prediction.samples_per_second()}, {"speed_up", choice.speed_up},
      {"efficiency", choice.efficiency}, {"idle_seconds", prediction.idle},
      {"bubble", prediction.bubble}, {"memory_bytes", prediction.memory_bytes},
      {"lacking_bytes", choice.lacking_bytes}, {"goodput", choice.goodput.share}};
  for (const auto& use : plan::names_of(plan::Use{}))
    object[std::string(use.name) + "_seconds"] = prediction.of(use.value);
  if (choice.hours > 0) object["hours"] = choice.hours;
  if (choice.cost > 0) object["cost"] = choice.cost;
  return object;
}

Json pick_json(std::optional<std::size_t> pick) { return pick ? Json(*pick) : Json(nullptr); }

Json scenario_json(const ComparedScenario& scenario) {
  const plan::Answer& answer = scenario.answer;
  return {{"change", scenario.text}, {"verdict", verdict_of(answer)},
      {"choice", answer.pick ? choice_json(answer.choices[*answer.pick]) : Json(nullptr)}};
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const plan::Answer& answer = report.answer;
  Json choices = Json::array(), impossible = Json::array(), scenarios = Json::array();
  for (const plan::Choice& choice : answer.choices) choices.push_back(choice_json(choice));
  for (const Confirmed& each : report.confirmed)
    choices[each.choice]["measured_seconds"] = each.step_seconds;
  for (const auto& [way, reason] : answer.impossible)
    impossible.push_back({{"way", way}, {"reason", reason}});
  for (const ComparedScenario& each : report.scenarios) scenarios.push_back(scenario_json(each));
  const Json object = {{"v", 1}, {"model", answer.profile.model},
      {"precision", answer.profile.precision}, {"device", answer.profile.device},
      {"verdict", verdict_of(report)}, {"pick", pick_json(pick_of(answer, report.confirmed))},
      {"choices", choices}, {"impossible", impossible}, {"what_if", scenarios}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
