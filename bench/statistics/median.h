#pragma once

#include <span>
#include <vector>

namespace lockstep::bench {

/// A number estimated from samples, and the interval that its true value lies in.
struct Estimate {
  double median = 0;
  double low = 0;         ///< the interval is [low, high]
  double high = 0;        ///< low and high are values that were measured
  double confidence = 0;  ///< the probability with which an interval made this way covers
  int count = 0;          ///< of samples
};

/// Returns the middle value; of an even number the mean of the two in the middle. None, or one that
/// is not finite, is an InvalidArgument.
double median(std::span<const double> values);

/// Estimates the median of what the values are drawn from, with an interval between two of them
/// that holds whatever the distribution is (order statistics, binomial).
///
/// It is the narrowest symmetric interval that covers with the asked confidence, in (0, 1). For few
/// values even the smallest and the largest do not reach that (0.95 needs 6): then they are the
/// interval, and `confidence` says how often they cover: 3 values 0.75, 2 values 0.5, one value 0.
/// No values, or one that is not finite, is an InvalidArgument.
Estimate estimate_median(std::span<const double> values, double confidence = 0.95);

/// Returns which values lie far from the others, to be shown and never to be removed: those whose
/// modified z-score, 0.6745 |x - median| / MAD, is above the limit (Iglewicz and Hoaglin, 1993).
/// MAD is the median of the absolute deviations from the median; where more than half of the values
/// are equal and it is 0, their mean times 1.2533 stands in for MAD / 0.6745. Of fewer than three
/// values none is an outlier. A value that is not finite is an InvalidArgument.
std::vector<bool> outliers(std::span<const double> values, double limit = 3.5);

/// Estimates the ratio of two medians from values measured in pairs: the i-th of both belong to one
/// round, so that what slowed a round down slowed both.
///
/// `median` is the ratio of the medians. The interval is that of the median of the pairs' ratios,
/// as estimate_median() gives it, widened to hold the ratio of the medians where it lies outside.
/// Lists of different lengths, empty ones, values that are not finite and a denominator of 0 are an
/// InvalidArgument.
Estimate estimate_ratio(std::span<const double> numerators, std::span<const double> denominators,
    double confidence = 0.95);

}  // namespace lockstep::bench
