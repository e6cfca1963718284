#include "bench/study/figure_of.h"

#include "bench/statistics/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {

plot::Point point_of(double x, const Estimate& estimate, double factor) {
  if (estimate.count < 2) return {x, factor * estimate.median};
  return {x, factor * estimate.median, factor * estimate.low, factor * estimate.high};
}

std::optional<plot::Point> point_of(
    double x, const std::optional<Estimate>& estimate, double factor) {
  if (!estimate) return std::nullopt;
  return point_of(x, *estimate, factor);
}

std::optional<plot::Point> point_of(double x, const std::optional<double>& value, double factor) {
  if (!value) return std::nullopt;
  return plot::Point{x, factor * *value};
}

void add_if_any(plot::Figure& figure, plot::Series series) {
  if (!series.points.empty()) figure.series.push_back(std::move(series));
}

std::string medians_note(int rounds) {
  return concat(
      "Medians of up to ", rounds, rounds == 1 ? " round" : " rounds", "; whiskers are intervals.");
}

std::string extrapolated_text(double epoch_share) {
  if (epoch_share >= 1) return "";
  return concat(" Extrapolated from ", percent_text(epoch_share), " of an epoch or more.");
}

}  // namespace lockstep::bench
