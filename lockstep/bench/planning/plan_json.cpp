#include <nlohmann/json.hpp>

#include "lockstep/bench/planning/plan_section.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json choice_json(const plan::Choice& choice) {
  const plan::Prediction& prediction = choice.prediction;
  Json object = {{"way", describe(prediction.way)}, {"parallel", kind_of(prediction.way)},
      {"replicas", prediction.way.replicas}, {"stages", prediction.way.stages},
      {"nodes", choice.machine.nodes}, {"places", choice.machine.all_places()},
      {"batch", prediction.batch}, {"step_seconds", prediction.seconds},
      {"samples_per_s", prediction.samples_per_second()}, {"speed_up", choice.speed_up},
      {"efficiency", choice.efficiency}, {"idle_seconds", prediction.idle},
      {"bubble", prediction.bubble}, {"memory_bytes", prediction.memory_bytes},
      {"lacking_bytes", choice.lacking_bytes}};
  for (const auto& use : plan::names_of(plan::Use{}))
    object[std::string(use.name) + "_seconds"] = prediction.of(use.value);
  if (choice.hours > 0) object["hours"] = choice.hours;
  if (choice.cost > 0) object["cost"] = choice.cost;
  return object;
}

}  // namespace

std::string plan_json(const plan::Answer& answer) {
  Json choices = Json::array(), impossible = Json::array();
  for (const plan::Choice& choice : answer.choices) choices.push_back(choice_json(choice));
  for (const auto& [way, reason] : answer.impossible)
    impossible.push_back({{"way", way}, {"reason", reason}});
  const Json object = {{"v", 1}, {"model", answer.profile.model},
      {"precision", answer.profile.precision}, {"device", answer.profile.device},
      {"verdict", verdict_of(answer)}, {"pick", answer.pick ? Json(*answer.pick) : Json(nullptr)},
      {"choices", choices}, {"impossible", impossible}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::bench
