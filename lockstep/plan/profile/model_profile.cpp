#include "lockstep/plan/profile/model_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

// More than any machine has: sums of these stay finite.
constexpr double kMostAmount = 1e24;
constexpr double kMostSeconds = 1e9;

void check_amount(
    const ModelProfile& profile, const char* what, double amount, double most = kMostAmount) {
  check(amount >= 0 && amount <= most, "plan: the profile of ", profile.model, " has ", what,
      " of ", amount, "; it must be from 0 to ", most);
}

void check_curve(const ModelProfile& profile, const char* what, const CostCurve& curve) {
  for (const auto& [batch, seconds] : curve.points())
    check_amount(profile, what, seconds / batch, kMostSeconds);
}

}  // namespace

double LayerCosts::parameter_bytes() const {
  return std::accumulate(parameters.begin(), parameters.end(), 0.0);
}

double ModelProfile::parameter_bytes() const {
  double bytes = 0;
  for (const LayerCosts& layer : layers) bytes += layer.parameter_bytes();
  return bytes;
}

double ModelProfile::activation_bytes() const {
  double bytes = 0;
  for (const LayerCosts& layer : layers) bytes += layer.activation_bytes;
  return bytes;
}

double ModelProfile::largest_parameter_bytes() const {
  double most = 0;
  for (const LayerCosts& layer : layers)
    for (const double bytes : layer.parameters) most = std::max(most, bytes);
  return most;
}

double ModelProfile::step_seconds(double batch) const {
  double seconds = input(batch) + rest(batch) + optimizer;
  for (const LayerCosts& layer : layers) seconds += layer.forward(batch) + layer.backward(batch);
  return seconds;
}

ModelProfile ModelProfile::scaled_to(double batch, double seconds) const {
  check(seconds > 0, "plan: a step takes more than 0 seconds: ", seconds);
  const double factor = seconds / step_seconds(batch);
  ModelProfile scaled = *this;
  for (LayerCosts& layer : scaled.layers) {
    for (CostCurve* const curve :
        {&layer.forward, &layer.backward, &layer.backward_input, &layer.backward_weight}) {
      *curve = curve->times(factor);
    }
  }
  scaled.input = input.times(factor);
  scaled.rest = rest.times(factor);
  scaled.optimizer *= factor;
  scaled.overheads.hand_over = overheads.hand_over.times(factor);
  scaled.overheads.threads = overheads.threads.times(factor);
  scaled.overheads.gradient_core *= factor;
  return scaled;
}

void check_profile(const ModelProfile& profile) {
  check(!profile.layers.empty(), "plan: the profile of ", profile.model, " has no layers");
  check_amount(profile, "an optimizer's time", profile.optimizer, kMostSeconds);
  check_curve(profile, "an input's time", profile.input);
  check_curve(profile, "other time", profile.rest);
  check_curve(profile, "a time to hand over", profile.overheads.hand_over);
  check_curve(profile, "a time of threads", profile.overheads.threads);
  check_amount(profile, "copies of the parameters", profile.state_copies);
  check_amount(profile, "memory of a process", profile.process_bytes);
  check_amount(profile, "noise", profile.noise);
  check_amount(profile, "arithmetic", profile.flops);
  check_amount(profile, "a cost of sockets", profile.overheads.socket_core);
  check_amount(profile, "a cost of gradients", profile.overheads.gradient_core);
  check_amount(profile, "memory of replicas", profile.overheads.replica_bytes);
  check_amount(profile, "memory of sockets", profile.overheads.socket_bytes);
  check_company(profile.company);
  for (const LayerCosts& layer : profile.layers) {
    for (const CostCurve* const curve :
        {&layer.forward, &layer.backward, &layer.backward_input, &layer.backward_weight})
      check_curve(profile, "a layer's time a sample", *curve);
    check_amount(profile, "activations", layer.activation_bytes);
    check_amount(profile, "an output", layer.output_bytes);
    for (const double bytes : layer.parameters) check_amount(profile, "a parameter", bytes);
  }
  check(profile.step_seconds(1) > 0, "plan: the profile of ", profile.model, " takes no time");
}

}  // namespace lockstep::plan
