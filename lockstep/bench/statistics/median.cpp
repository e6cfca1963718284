#include "lockstep/bench/statistics/median.h"

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
  std::sort(result.begin(), result.end());
  return result;
}

double middle(const std::vector<double>& ascending) {
  const std::size_t half = ascending.size() / 2;
  if (ascending.size() % 2 == 1) return ascending[half];
  return std::midpoint(ascending[half - 1], ascending[half]);
}

/// Is an interval from the value with so many below it to the one with so many above it.
struct OrderInterval {
  std::size_t left_out = 0;  // at each end
  double confidence = 0;
};

/// The median misses the interval when it lies below so many of the values, or above: each is a
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

}  // namespace

double median(std::span<const double> values) { return middle(sorted(values, "median")); }

Estimate estimate_median(std::span<const double> values, double confidence) {
  check(
      confidence > 0 && confidence < 1,
      "estimate_median: the confidence must lie between 0 and 1: ", confidence);
  const std::vector<double> ascending = sorted(values, "estimate_median");
  const OrderInterval interval = narrowest_interval(ascending.size(), confidence);
  return {
      .median = middle(ascending),
      .low = ascending[interval.left_out],
      .high = ascending[ascending.size() - 1 - interval.left_out],
      .confidence = interval.confidence,
      .count = static_cast<int>(ascending.size())};
}

}  // namespace lockstep::bench
