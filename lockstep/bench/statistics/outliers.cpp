#include "lockstep/bench/statistics/outliers.h"

#include <cmath>

#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {
namespace {

constexpr double kMedianToDeviation = 0.6745;  // MAD of a normal distribution with deviation 1
constexpr double kMeanToDeviation = 1.2533;    // 1 over its mean absolute deviation
constexpr std::size_t kFewest = 3;

/// Estimates the standard deviation from absolute deviations; 0 when all are.
double deviation(const std::vector<double>& distances) {
  const double mad = median(distances);
  if (mad > 0) return mad / kMedianToDeviation;
  double sum = 0;
  for (const double distance : distances) sum += distance;
  return kMeanToDeviation * sum / static_cast<double>(distances.size());
}

}  // namespace

std::vector<bool> outliers(std::span<const double> values, double limit) {
  std::vector<bool> found(values.size(), false);
  if (values.empty()) return found;
  const double center = median(values);
  if (values.size() < kFewest) return found;
  std::vector<double> distances;
  // Halves, as the distance of two doubles may be none; only their ratios count.
  for (const double value : values) distances.push_back(std::abs(value / 2 - center / 2));
  const double scale = deviation(distances);
  if (scale == 0) return found;
  for (std::size_t i = 0; i < values.size(); ++i) found[i] = distances[i] / scale > limit;
  return found;
}

}  // namespace lockstep::bench
