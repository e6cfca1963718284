#include "bench/statistics/median.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr double kRounding = 1e-12;  // of probabilities that are sums

std::vector<double> sorted(std::span<const double> values, const char* operation) {
  check(!values.empty(), operation, ": needs at least one value");
  for (const double value : values) {
    check(std::isfinite(value), operation, ": a value is not finite: ", value);
  }
  std::vector<double> result(values.begin(), values.end());
  std::ranges::sort(result);
  return result;
}

double middle(const std::vector<double>& ascending) {
  const std::size_t half = ascending.size() / 2;
  if (ascending.size() % 2 == 1) return ascending[half];
  return std::midpoint(ascending[half - 1], ascending[half]);
}

/// An interval from the value with this many below it to the one with this many above it.
struct OrderInterval {
  std::size_t left_out = 0;  // at each end
  double confidence = 0;
};

/// The median misses the interval when it lies below that many of the values, or above: each is a
/// tail of the binomial distribution of as many tosses of a coin.
OrderInterval narrowest_interval(std::size_t count, double confidence) {
  const auto tosses = static_cast<double>(count);
  double log_term = -tosses * std::log(2.0);  // of exactly `left_out` heads
  double tail = std::exp(log_term);
  OrderInterval interval{.left_out = 0, .confidence = 1 - 2 * tail};
  while (true) {
    const auto heads = static_cast<double>(interval.left_out);
    log_term += std::log((tosses - heads) / (heads + 1));
    tail += std::exp(log_term);
    if (1 - 2 * tail < confidence - kRounding) return interval;
    interval = {.left_out = interval.left_out + 1, .confidence = 1 - 2 * tail};
  }
}

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

double median(std::span<const double> values) { return middle(sorted(values, "median")); }

Estimate estimate_median(std::span<const double> values, double confidence) {
  check(confidence > 0 && confidence < 1,
      "estimate_median: the confidence must lie between 0 and 1: ", confidence);
  const std::vector<double> ascending = sorted(values, "estimate_median");
  const OrderInterval interval = narrowest_interval(ascending.size(), confidence);
  return {.median = middle(ascending),
      .low = ascending[interval.left_out],
      .high = ascending[ascending.size() - 1 - interval.left_out],
      .confidence = interval.confidence,
      .count = static_cast<int>(ascending.size())};
}

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

Estimate estimate_ratio(
    std::span<const double> numerators, std::span<const double> denominators, double confidence) {
  check(numerators.size() == denominators.size(),
      "estimate_ratio: values must come in pairs: ", numerators.size(), " and ",
      denominators.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < numerators.size(); ++i) {
    check(denominators[i] != 0, "estimate_ratio: the denominator of pair ", i, " is 0");
    ratios.push_back(numerators[i] / denominators[i]);
  }
  Estimate estimate = estimate_median(ratios, confidence);
  const double denominator = median(denominators);
  check(denominator != 0, "estimate_ratio: the median of the denominators is 0");
  estimate.median = median(numerators) / denominator;
  estimate.low = std::min(estimate.low, estimate.median);
  estimate.high = std::max(estimate.high, estimate.median);
  return estimate;
}

}  // namespace lockstep::bench
