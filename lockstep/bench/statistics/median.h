#pragma once

#include <span>

namespace lockstep::bench {

/// Is a number estimated from samples, and the interval that its true value lies in.
struct Estimate {
  double median = 0;
  double low = 0;         ///< the interval is [low, high]
  double high = 0;        ///< low and high are values that were measured
  double confidence = 0;  ///< the probability with which an interval made this way covers
  int count = 0;          ///< of samples
};

/// Gives the middle value; of an even number the mean of the two in the middle. None, or one that
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

}  // namespace lockstep::bench
