#pragma once

#include <span>
#include <string>

#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {

/// Writes seconds with about three digits that count: `0.943`, `12.4`, `555`.
std::string seconds_text(double seconds);

/// Writes how many times as much: `1.71`.
std::string ratio_text(double ratio);

/// Writes a share as `26 %`, `2.6 %`.
std::string percent_text(double share);

/// Writes the interval of an estimate of seconds or ratios: `1.62 to 1.80`; `-` for one sample,
/// which has none.
std::string seconds_interval(const Estimate& estimate);
std::string ratio_interval(const Estimate& estimate);

/// Writes a ratio with its interval: `1.71 (1.62 to 1.80)`, of one sample `1.71`.
std::string with_interval(const Estimate& ratio);

/// Writes the least and the most of some medians: `1.60 to 1.84`, or `1.60` where they look alike.
/// Needs one estimate at least.
std::string range_text(std::span<const Estimate> ratios);

}  // namespace lockstep::bench
