#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/bench/plot/axis.h"

namespace lockstep::bench::plot {
namespace {

constexpr int kMostSteps = 5;
constexpr double kRangeMargin = 0.04;
// Values whose least is below this share of the largest are shown from zero on.
constexpr double kNearZero = 0.7;
// For the numbers above and below bars.
constexpr double kHeadroom = 1.1;
// Values nearer to each other than this are one: their digits would not tell them apart.
constexpr double kSame = 1e-9;

void include(std::optional<Range>& range, double value) {
  if (!range) range = Range{value, value};
  range->low = std::min(range->low, value);
  range->high = std::max(range->high, value);
}

std::optional<Range> values_of(const Figure& figure, bool vertical) {
  std::optional<Range> range;
  for (const Series& series : figure.series) {
    for (const Point& point : series.points) {
      include(range, vertical ? point.y : point.x);
      if (vertical && point.low) include(range, *point.low);
      if (vertical && point.high) include(range, *point.high);
    }
  }
  return range;
}

bool has_bars(const Figure& figure) {
  return std::any_of(figure.series.begin(), figure.series.end(),
      [](const Series& series) { return series.style == Series::Style::kBars; });
}

bool is_one_value(Range range) {
  return range.high - range.low <= kSame * std::max(std::abs(range.low), std::abs(range.high));
}

// A single value is shown with zero, for it has no other scale.
Range with_zero(Range range, bool always) {
  const bool all = always || is_one_value(range);
  if (range.low == 0 && range.high == 0) return {0, 1};
  if (range.low >= 0 && (all || range.low <= kNearZero * range.high)) return {0, range.high};
  if (range.high <= 0 && (all || range.high >= kNearZero * range.low)) return {range.low, 0};
  return range;
}

Range widened(Range range, double share) {
  const double margin = (range.high - range.low) * share;
  return {range.low - margin, range.high + margin};
}

Range linear_y_range(Range values, bool bars, bool bytes) {
  Range range = with_zero(values, bars);
  if (bars) {
    range = {range.low * kHeadroom, range.high * kHeadroom};
  } else if (range.low == values.low && range.high == values.high) {
    range = widened(range, kRangeMargin);
  }
  return bytes ? nice_byte_range(range, kMostSteps) : nice_range(range, kMostSteps);
}

}  // namespace

Range y_range(const Figure& figure) {
  const std::optional<Range> values = values_of(figure, true);
  if (!values) return figure.y.logarithmic ? Range{1, 10} : Range{0, 1};
  if (figure.y.logarithmic && figure.y.bytes) return nice_logarithmic_byte_range(*values);
  if (figure.y.logarithmic) return nice_logarithmic_range(*values);
  Range range = linear_y_range(*values, has_bars(figure), figure.y.bytes);
  if (figure.y.most && values->high <= *figure.y.most)
    range.high = std::min(range.high, *figure.y.most);
  return range;
}

Range x_range(const Figure& figure) {
  if (!figure.x.categories.empty()) {
    return {-0.5, static_cast<double>(figure.x.categories.size()) - 0.5};
  }
  const std::optional<Range> values = values_of(figure, false);
  if (!values) return figure.x.logarithmic ? Range{1, 10} : Range{0, 1};
  if (figure.x.logarithmic) {
    const double factor =
        is_one_value(*values) ? 2 : std::pow(values->high / values->low, kRangeMargin);
    return {values->low / factor, values->high * factor};
  }
  if (!is_one_value(*values)) return widened(*values, kRangeMargin);
  const double around = values->low == 0 ? 1 : std::abs(values->low) / 2;
  return {values->low - around, values->high + around};
}

}  // namespace lockstep::bench::plot
