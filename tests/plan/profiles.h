#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/plan/machine.h"

namespace lockstep::plan::testing {

/// A chain of equal layers. A sample takes a second in each of forward, backward for the input and
/// backward for the weights; a layer has one parameter.
inline ModelProfile uniform(int layers, double parameter_bytes = 400) {
  ModelProfile profile{
      .model = "uniform", .precision = "32", .device = "a place", .source = "drawn", .layers = {}};
  for (int i = 0; i < layers; ++i) {
    profile.layers.push_back({.name = "layer" + std::to_string(i),
        .forward = CostCurve({{1, 1}}),
        .backward = CostCurve({{1, 2}}),
        .backward_input = CostCurve({{1, 1}}),
        .backward_weight = CostCurve({{1, 1}}),
        .activation_bytes = 10,
        .output_bytes = 4,
        .parameters = {parameter_bytes}});
  }
  return profile;
}

/// A cost that is a line: `fixed` seconds, and `per_sample` for each sample.
inline CostCurve line(double fixed, double per_sample) {
  constexpr double kFar = 1 << 20;
  return CostCurve({{1, fixed + per_sample}, {kFar, fixed + kFar * per_sample}});
}

/// Nodes of places that do not disturb each other, with links of this rate everywhere; 0: at once.
inline Machine free_machine(int nodes, int places, double bytes_per_second = 0) {
  return {.nodes = nodes,
      .places = places,
      .within = {.bytes_per_second = bytes_per_second},
      .between = {.bytes_per_second = bytes_per_second}};
}

}  // namespace lockstep::plan::testing
