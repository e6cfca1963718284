#include "bench/statistics/estimate_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr double kMostInFull = 1e9;

std::string with_digits(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// For what a column cannot hold.
std::string with_exponent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

}  // namespace

std::string seconds_text(double seconds) {
  const double size = std::abs(seconds);
  if (size >= kMostInFull) return with_exponent(seconds);
  const int before = size < 1 ? 0 : static_cast<int>(std::floor(std::log10(size))) + 1;
  return with_digits(seconds, std::clamp(3 - before, 0, 3));
}

std::string milliseconds_text(double seconds) { return seconds_text(1000 * seconds); }

std::string mebibytes_text(double bytes) { return decimals<0>(bytes / (1 << 20)); }

std::string ratio_text(double ratio) {
  return std::abs(ratio) < kMostInFull ? with_digits(ratio, 2) : with_exponent(ratio);
}

std::string percent_text(double share) {
  return with_digits(100 * share, share < 0.1 ? 1 : 0) + " %";
}

std::string interval_text(const Estimate& estimate, NumberText text) {
  if (estimate.count < 2) return "-";
  return text(estimate.low) + " to " + text(estimate.high);
}

std::string with_interval(const Estimate& ratio) {
  const std::string text = ratio_text(ratio.median);
  return ratio.count < 2 ? text : concat(text, " (", interval_text(ratio), ")");
}

std::string range_text(std::span<const Estimate> ratios) {
  const auto [least, most] = std::ranges::minmax_element(
      ratios, [](const Estimate& one, const Estimate& other) { return one.median < other.median; });
  const std::string first = ratio_text(least->median), last = ratio_text(most->median);
  return first == last ? first : concat(first, " to ", last);
}

}  // namespace lockstep::bench
