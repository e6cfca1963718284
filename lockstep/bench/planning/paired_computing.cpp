#include "lockstep/bench/planning/paired_computing.h"

#include <algorithm>
#include <functional>

#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {
namespace {

double median_of(const std::vector<PairedComputing>& measured,
    const std::function<double(const PairedComputing&)>& value) {
  std::vector<double> values;
  for (const PairedComputing& each : measured) values.push_back(value(each));
  return median(values);
}

PairedLine only_slower(const std::vector<PairedComputing>& measured) {
  const double ratio =
      median_of(measured, [](const auto& each) { return each.paired / each.alone; });
  return {.slowdown = std::max(1.0, ratio)};
}

PairedLine only_fixed(const std::vector<PairedComputing>& measured) {
  const double more =
      median_of(measured, [](const auto& each) { return each.paired - each.alone; });
  return {.fixed = std::max(0.0, more)};
}

}  // namespace

PairedLine paired_line(const std::vector<PairedComputing>& measured) {
  if (measured.empty()) return {};
  // slowdown * x + fixed * y should be 1 in each pair.
  double x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  for (const auto& [alone, paired] : measured) {
    x += alone / paired;
    y += 1 / paired;
    xx += alone / paired * alone / paired;
    xy += alone / paired / paired;
    yy += 1 / paired / paired;
  }
  const double area = xx * yy - xy * xy;
  if (area <= 1e-6 * xx * yy) return only_slower(measured);
  const PairedLine line{(x * yy - y * xy) / area, (y * xx - x * xy) / area};
  if (line.slowdown < 1) return only_fixed(measured);
  return line.fixed < 0 ? only_slower(measured) : line;
}

}  // namespace lockstep::bench
