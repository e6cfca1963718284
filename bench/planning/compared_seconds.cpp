#include "bench/planning/compared_seconds.h"

#include <algorithm>

#include "bench/statistics/median.h"

namespace lockstep::bench {
namespace {

CostLine only_slower(const std::vector<ComparedSeconds>& measured) {
  std::vector<double> ratios;
  for (const auto& [expected, seconds] : measured) ratios.push_back(seconds / expected);
  return {.slowdown = std::max(1.0, median(ratios))};
}

}  // namespace

CostLine cost_line(const std::vector<ComparedSeconds>& measured) {
  if (measured.empty()) return {};
  // slowdown * expected + fixed should be what was measured, each divided by that.
  double x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  for (const auto& [expected, seconds] : measured) {
    x += expected / seconds;
    y += 1 / seconds;
    xx += expected / seconds * expected / seconds;
    xy += expected / seconds / seconds;
    yy += 1 / seconds / seconds;
  }
  const double area = xx * yy - xy * xy;
  if (area <= 1e-6 * xx * yy) return only_slower(measured);
  const CostLine line{(x * yy - y * xy) / area, (y * xx - x * xy) / area};
  if (line.slowdown < 1) return {.fixed = fixed_cost(measured)};
  return line.fixed < 0 ? only_slower(measured) : line;
}

double fixed_cost(const std::vector<ComparedSeconds>& measured) {
  double more = 0, weights = 0;
  for (const auto& [expected, seconds] : measured) {
    more += (seconds - expected) / seconds / seconds;
    weights += 1 / seconds / seconds;
  }
  return weights > 0 ? std::max(0.0, more / weights) : 0;
}

}  // namespace lockstep::bench
