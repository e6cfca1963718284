#include "lockstep/report/plot/axis.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>

#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

// One more than the steps that y_range() makes at most: so the ticks are at its own steps.
constexpr int kMostStepsUp = 6;
constexpr int kMostPowersUp = 8;
constexpr int kMostTicksAcross = 9;
constexpr std::size_t kMostValues = 12;
constexpr double kGap = 7;
constexpr std::size_t kMostLines = 3;
// Upright labels, by and by longer until their lines fit side by side.
constexpr double kUprightWidths[] = {110, 150, 200, 260};

std::vector<std::string> texts_of(const Axis& axis, const std::vector<double>& values) {
  return axis.bytes ? byte_texts(values) : tick_texts(values, axis.logarithmic);
}

std::vector<double> nice_ticks(const Axis& axis, Range range, int most) {
  if (axis.bytes) {
    return axis.logarithmic ? logarithmic_byte_ticks(range, most) : linear_byte_ticks(range, most);
  }
  return axis.logarithmic ? logarithmic_ticks(range, most) : linear_ticks(range, most);
}

std::vector<Tick> placed(const Axis& axis, const Scale& scale, const std::vector<double>& values) {
  const std::vector<std::string> texts = texts_of(axis, values);
  std::vector<Tick> ticks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ticks.push_back({scale.place(values[i]), {texts[i]}});
  }
  return ticks;
}

bool collide(const std::vector<Tick>& ticks) {
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    const double widths = text_width(ticks[i - 1].lines.front(), {kTickSize}) +
                          text_width(ticks[i].lines.front(), {kTickSize});
    if (ticks[i].place - ticks[i - 1].place < widths / 2 + kGap) return true;
  }
  return false;
}

std::vector<Tick> number_ticks(const Figure& figure, const Scale& scale) {
  std::set<double> values;
  for (const Series& series : figure.series) {
    for (const Point& point : series.points) values.insert(point.x);
  }
  if (!values.empty() && values.size() <= kMostValues) {
    std::vector<Tick> ticks = placed(figure.x, scale, {values.begin(), values.end()});
    if (!collide(ticks)) return ticks;
  }
  for (int most = kMostTicksAcross; most > 1; --most) {
    std::vector<Tick> ticks = placed(figure.x, scale, nice_ticks(figure.x, scale.range, most));
    if (!collide(ticks)) return ticks;
  }
  return placed(figure.x, scale, nice_ticks(figure.x, scale.range, 1));
}

bool breaks_words(const std::string& text, double width) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (text_width(text.substr(begin, end - begin), {kTickSize}) > width) return true;
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> shortened(std::vector<std::string> lines, std::size_t most) {
  if (lines.size() <= most) return lines;
  lines.resize(most);
  lines.back() += "\u2026";
  return lines;
}

std::vector<std::string> upright_lines(const std::string& text, std::size_t most) {
  std::vector<std::string> lines;
  for (const double width : kUprightWidths) {
    lines = wrap(text, width, {kTickSize});
    if (lines.size() <= most) break;
  }
  return shortened(lines, most);
}

void label_categories(const std::vector<std::string>& categories, PlacedAxis& axis) {
  const double slot = axis.scale.place(1) - axis.scale.place(0);
  for (const std::string& category : categories) {
    const bool fits = !breaks_words(category, slot - kGap) &&
                      wrap(category, slot - kGap, {kTickSize}).size() <= kMostLines;
    axis.upright = axis.upright || !fits;
  }
  const auto most = static_cast<std::size_t>(std::max(1.0, std::floor((slot - 2) / kTickLine)));
  // Of very many categories only every n-th can be named.
  const auto every = static_cast<std::size_t>(std::ceil(kTickLine / slot));
  for (std::size_t i = 0; i < categories.size(); ++i) {
    if (axis.upright && i % every != 0) continue;
    axis.ticks.push_back({axis.scale.place(static_cast<double>(i)),
        axis.upright ? upright_lines(categories[i], most)
                     : wrap(categories[i], slot - kGap, {kTickSize})});
  }
}

}  // namespace

double Scale::place(double value) const {
  const double share = logarithmic ? std::log(value / range.low) / std::log(range.high / range.low)
                                   : (value - range.low) / (range.high - range.low);
  return from + share * (to - from);
}

PlacedAxis y_axis(const Figure& figure, double bottom, double top) {
  const Scale scale{y_range(figure), figure.y.logarithmic, bottom, top};
  const int most = figure.y.logarithmic ? kMostPowersUp : kMostStepsUp;
  return {scale, placed(figure.y, scale, nice_ticks(figure.y, scale.range, most))};
}

PlacedAxis x_axis(const Figure& figure, double left, double right) {
  PlacedAxis axis{{x_range(figure), figure.x.logarithmic, left, right}, {}};
  if (figure.x.categories.empty()) {
    axis.ticks = number_ticks(figure, axis.scale);
  } else {
    label_categories(figure.x.categories, axis);
  }
  return axis;
}

double widest_label(const PlacedAxis& axis) {
  double widest = 0;
  for (const Tick& tick : axis.ticks) {
    for (const std::string& line : tick.lines) {
      widest = std::max(widest, text_width(line, {kTickSize}));
    }
  }
  return widest;
}

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
