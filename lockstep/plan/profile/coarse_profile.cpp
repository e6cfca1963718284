#include "lockstep/plan/profile/coarse_profile.h"

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

constexpr int kLayers = 16;

LayerCosts equal_layer(const WholeStep& step, int number) {
  const double seconds = step.seconds / kLayers;
  const auto cost = [&](double share) { return CostCurve({{step.batch, seconds * share}}); };
  return {.name = concat("part ", number),
      .forward = cost(1.0 / 3),
      .backward = cost(2.0 / 3),
      .backward_input = cost(1.0 / 3),
      .backward_weight = cost(1.0 / 3),
      .parameters = {step.parameter_bytes / kLayers}};
}

}  // namespace

ModelProfile coarse_profile(const WholeStep& step) {
  check(step.seconds > 0 && step.batch >= 1, "plan: a step of ", step.batch, " samples takes ",
      step.seconds, " seconds");
  ModelProfile profile{.model = step.model,
      .precision = "32",
      .device = "one place",
      .source = "its whole step",
      .layers = {}};
  for (int i = 0; i < kLayers; ++i) profile.layers.push_back(equal_layer(step, i));
  return profile;
}

}  // namespace lockstep::plan
