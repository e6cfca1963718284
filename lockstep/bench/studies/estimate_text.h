#pragma once

#include <optional>
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

/// Tells whether the whole interval of a ratio lies above 1, or below: then it is told from 1. One
/// sample tells nothing.
bool above_one(const std::optional<Estimate>& ratio);
bool below_one(const std::optional<Estimate>& ratio);

}  // namespace lockstep::bench
