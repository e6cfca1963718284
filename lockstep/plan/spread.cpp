#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/plan/prediction.h"

namespace lockstep::plan {
namespace {

// Note [Spread of a prediction]
// The standard deviation of the logarithm of predicted over measured, fitted to 185 cases of
// benchmarks/plan_accuracy.py on a machine that others share, where equal trainings differ by as
// much. The profile's own noise counts where it is larger.
struct KindOfWay {
  const char* name;
  double spread;
};
constexpr std::array kSpreads{KindOfWay{"serial", 0.09}, KindOfWay{"dp", 0.10},
    KindOfWay{"ddp", 0.10}, KindOfWay{"mp", 0.11}, KindOfWay{"pp", 0.11}};
constexpr double kComposed = 0.14;  // replicas of stages
constexpr double kBetweenNodes = 0.06;
constexpr double kCrowded = 0.12;      // more places than cores
constexpr double kNotMeasured = 0.25;  // data sheets and other people's figures
constexpr double kOutside = 0.15;      // batches beyond those that were measured

constexpr double kOneInTwenty = 1.6449;  // standard deviations

double of_kind(const Way& way) {
  const std::string kind = kind_of(way);
  const auto found = std::find_if(
      kSpreads.begin(), kSpreads.end(), [&](const KindOfWay& each) { return kind == each.name; });
  return found == kSpreads.end() ? kComposed : found->spread;
}

}  // namespace

double samples_at_once(const Way& way, double batch) {
  return batch / way.replicas / (way.stages > 1 ? way.micro_batches : way.accumulated);
}

bool is_outside(const ModelProfile& profile, double samples) {
  const auto& points = profile.layers.front().forward.points();
  return points.empty() || samples < points.front().batch || samples > points.back().batch;
}

double spread_of(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  const int cores = profile.company.cores;
  const int on_the_machine =
      machine.is_one_machine ? way.places() : std::min(way.places(), machine.places);
  double squares = std::pow(std::max(of_kind(way), profile.noise), 2);
  if (way.places() > machine.places) squares += std::pow(kBetweenNodes, 2);
  if (cores > 0 && on_the_machine > cores) squares += std::pow(kCrowded, 2);
  if (!profile.is_measured) squares += std::pow(kNotMeasured, 2);
  if (is_outside(profile, samples_at_once(way, batch))) squares += std::pow(kOutside, 2);
  return std::sqrt(squares);
}

double Prediction::least_seconds() const { return seconds * std::exp(-kOneInTwenty * spread); }
double Prediction::most_seconds() const { return seconds * std::exp(kOneInTwenty * spread); }

}  // namespace lockstep::plan
