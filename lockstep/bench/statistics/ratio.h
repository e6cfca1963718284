#pragma once

#include <span>

#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {

/// Estimates the ratio of two medians from values measured in pairs: the i-th of both belong to one
/// round, so that what slowed a round down slowed both.
///
/// `median` is the ratio of the medians. The interval is that of the median of the pairs' ratios,
/// as estimate_median() gives it, widened to hold the ratio of the medians where it lies outside.
/// Lists of different lengths, empty ones, values that are not finite and a denominator of 0 are an
/// InvalidArgument.
Estimate estimate_ratio(
    std::span<const double> numerators, std::span<const double> denominators,
    double confidence = 0.95);

}  // namespace lockstep::bench
