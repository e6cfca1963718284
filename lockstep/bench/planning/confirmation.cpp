#include "lockstep/bench/planning/confirmation.h"

#include <algorithm>

#include "lockstep/bench/planning/way_flags.h"
#include "lockstep/bench/statistics/median.h"
#include "lockstep/core/error.h"

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

}  // namespace lockstep::bench
