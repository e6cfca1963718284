#pragma once

#include <span>
#include <string>

#include "bench/statistics/median.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {

/// A way of writing a number.
using NumberText = std::string (*)(double);

/// Returns seconds with about three significant digits: `0.943`, `12.4`, `555`.
std::string seconds_text(double seconds);

/// Returns seconds as milliseconds, in the same way.
std::string milliseconds_text(double seconds);

/// Returns bytes as whole MiB: `512`.
std::string mebibytes_text(double bytes);

/// Returns a ratio with two decimals: `1.71`.
std::string ratio_text(double ratio);

/// Returns a share as `26 %`, `2.6 %`.
std::string percent_text(double share);

/// Returns a number with this many decimals.
template <int kDecimals>
std::string decimals(double value) {
  return cell(value, kDecimals);
}

/// Returns the interval of an estimate, `1.62 to 1.80`; `-` for one sample, which has none.
std::string interval_text(const Estimate& estimate, NumberText text = ratio_text);

/// Returns a ratio with its interval: `1.71 (1.62 to 1.80)`, of one sample `1.71`.
std::string with_interval(const Estimate& ratio);

/// Returns the least and the largest of some medians: `1.60 to 1.84`, or `1.60` where they look
/// alike. Needs at least one estimate.
std::string range_text(std::span<const Estimate> ratios);

}  // namespace lockstep::bench
