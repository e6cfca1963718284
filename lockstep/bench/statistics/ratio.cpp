#include "lockstep/bench/statistics/ratio.h"

#include <algorithm>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::bench {

Estimate estimate_ratio(
    std::span<const double> numerators, std::span<const double> denominators, double confidence) {
  check(
      numerators.size() == denominators.size(),
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
