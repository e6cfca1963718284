#include "lockstep/report/plot/layout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {

namespace {

constexpr double kPlotHeight = 290;               // of what is inside the axes
constexpr double kTickSize = 12, kTickLine = 14;  // of labels, and from one line to the next
constexpr double kValueSize = 11;                 // at the ends of bars
constexpr double kSignGap = 6;                    // between a sign and its name
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

bool is_bars(const Series& series) { return series.style == Series::Style::kBars; }

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

// All values and a margin of 4 % on each side.
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

PlacedAxis y_axis(const Figure& figure, double bottom, double top) {
  const Scale scale{y_range(figure), figure.y.logarithmic, bottom, top};
  const int most = figure.y.logarithmic ? kMostPowersUp : kMostStepsUp;
  return {scale, placed(figure.y, scale, nice_ticks(figure.y, scale.range, most))};
}

// Ticks are the values themselves if they are few and their labels do not collide, nice numbers
// otherwise, or the categories, whose labels are set in lines, or upright where words do not fit.
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

constexpr std::size_t kMostEndLabels = 6;
constexpr double kWidestEndLabel = 150;
constexpr double kFurthest = 12;  // that a name may be from the end of its line
constexpr double kBetweenColumns = 18;
constexpr double kRow = 18;
constexpr double kLegendMargin = 8;  // between the plot and the names

// Values that want to be apart, as one piece that moves as a whole.
struct Block {
  double sum;  // of where its members want the first of them
  std::size_t count;
  double first() const { return sum / static_cast<double>(count); }
};

std::string shown_name(const Series& series) {
  return series.points.empty() ? series.name + " (no values)" : series.name;
}

const Point* last_point(const Series& series) {
  const auto furthest = std::ranges::max_element(series.points, {}, &Point::x);
  return furthest == series.points.end() ? nullptr : &*furthest;
}

bool can_have_end_labels(const Figure& figure) {
  if (!figure.x.categories.empty() || figure.series.size() > kMostEndLabels) return false;
  if (figure.series.size() == 1 && figure.series.front().name.empty()) return false;
  for (const Series& series : figure.series) {
    const Point* last = last_point(series);
    if (series.style == Series::Style::kMarkers || last == nullptr) return false;
    if (last->x != last_point(figure.series.front())->x) return false;
    if (text_width(series.name, {kTickSize}) > kWidestEndLabel) return false;
  }
  return !figure.series.empty();
}

double cell_width(const Figure& figure) {
  double widest = 0;
  for (const Series& series : figure.series) {
    widest = std::max(widest, text_width(shown_name(series), {kTickSize}));
  }
  return kSignWidth + kSignGap + widest + kBetweenColumns;
}

// Places the name of each line beside its last point, in a margin right of the plot whose width is
// the legend's size. Nothing where a name would be far from its line: lines that end elsewhere or
// too near to each other, long names, many series, bars.
std::optional<Legend> end_labels(const Figure& figure, const Scale& scale) {
  if (!can_have_end_labels(figure)) return std::nullopt;
  std::vector<double> ends;
  for (const Series& series : figure.series) ends.push_back(scale.place(last_point(series)->y));
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return ends[a] < ends[b]; });
  std::vector<double> sorted;
  for (const std::size_t series : order) sorted.push_back(ends[series]);
  const auto places = spread(sorted, kTickLine + 2, {scale.to, scale.from});
  if (!places) return std::nullopt;
  Legend legend;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (std::abs((*places)[i] - sorted[i]) > kFurthest) return std::nullopt;
    const std::string& name = figure.series[order[i]].name;
    legend.entries.push_back({order[i], kLegendMargin, (*places)[i], {name}});
    legend.size = std::max(legend.size, text_width(name, {kTickSize}));
  }
  legend.size += kLegendMargin + kSignWidth + kSignGap;
  return legend;
}

// In rows and columns of a box whose top is 0.
Legend legend_rows(const Figure& figure, double left, double right) {
  const bool nameless = figure.series.size() == 1 && figure.series.front().name.empty();
  if (figure.series.empty() || nameless) return {};
  const double cell = cell_width(figure);
  const double width = right - left;
  const auto columns =
      static_cast<std::size_t>(std::max(1.0, std::floor((width + kBetweenColumns) / cell)));
  Legend legend;
  std::size_t tallest = 1;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    if (i % columns == 0 && i != 0) {
      legend.size += kRow + static_cast<double>(tallest - 1) * kTickLine;
      tallest = 1;
    }
    const double text = std::min(cell - kBetweenColumns, width) - kSignWidth - kSignGap + 1;
    LegendEntry entry{
        i, left + static_cast<double>(i % columns) * cell, legend.size + kRow / 2, {}};
    entry.lines = wrap(shown_name(figure.series[i]), text, {kTickSize});
    tallest = std::max(tallest, entry.lines.size());
    legend.entries.push_back(std::move(entry));
  }
  legend.size += kRow + static_cast<double>(tallest - 1) * kTickLine;
  return legend;
}

constexpr double kShare = 0.8;
constexpr double kWidest = 56;
constexpr double kBetween = 1.5;
constexpr double kValueGap = 5;

Bar placed(const Point& point, double left, double width, const Scale& x, const Scale& y) {
  Bar bar;
  bar.left = x.place(point.x) + left + kBetween / 2;
  bar.right = x.place(point.x) + left + width - kBetween / 2;
  bar.end = y.place(point.y);
  bar.base = y.place(0);
  bar.value = value_text(point.y);
  bar.value_y = point.y < 0 ? y.place(point.low.value_or(point.y)) + kValueGap + kValueSize * 0.8
                            : y.place(point.high.value_or(point.y)) - kValueGap;
  return bar;
}

bool values_fit(const Figure& figure, const std::vector<Bar>& bars, double width) {
  const auto fits = [&](const Bar& bar) {
    return text_width(bar.value, {kValueSize}) + 2 <= width;
  };
  return std::ranges::all_of(figure.series, is_bars) && std::ranges::all_of(bars, fits);
}

// Side by side in the four fifths in the middle of their category. Values are written if all of
// them fit and nothing but bars is in the figure.
std::vector<Bar> place_bars(const Figure& figure, const Scale& x, const Scale& y) {
  const auto count = std::ranges::count_if(figure.series, is_bars);
  if (count == 0) return {};
  const double slot = x.place(1) - x.place(0);
  const double width = std::min(slot * kShare / static_cast<double>(count), kWidest);
  double left = -width * static_cast<double>(count) / 2;
  std::vector<Bar> bars;
  for (std::size_t series = 0; series < figure.series.size(); ++series) {
    if (!is_bars(figure.series[series])) continue;
    const std::vector<Point>& points = figure.series[series].points;
    for (std::size_t point = 0; point < points.size(); ++point) {
      Bar bar = placed(points[point], left, width, x, y);
      bar.series = series;
      bar.point = point;
      bars.push_back(std::move(bar));
    }
    left += width;
  }
  // A bar alone in its category has all of the category for its value.
  if (!values_fit(figure, bars, count == 1 ? slot : width)) {
    for (Bar& bar : bars) bar.value.clear();
  }
  return bars;
}

using Anchor = PlacedText::Anchor;

constexpr double kEdge = 16;
constexpr TextSize kTitle{15, true};
constexpr TextSize kLabel{12};
constexpr TextSize kNote{11};
constexpr double kTitleLine = 20;
constexpr double kLabelLine = 15;
constexpr double kBaseline = 4;  // from the middle of a line down to its baseline
constexpr double kLeastLeft = 44;
constexpr double kFreeRight = 24;

/// Places texts from the top down.
class Composer {
 public:
  explicit Composer(const Figure& figure) : figure_(figure) {}

  Layout compose() {
    const PlacedAxis heights = y_axis(figure_, kPlotHeight, 0);
    const std::optional<Legend> ends = end_labels(figure_, heights.scale);
    layout_.left = std::max(kLeastLeft, kEdge + widest_label(heights) + 8);
    layout_.right = kWidth - (ends ? ends->size + 8 : kFreeRight);
    add_lines(figure_.title, kTitle, kTitleLine, false);
    if (!ends) add_legend_rows();
    top_ += 5;
    add_lines(figure_.y.label, kLabel, kLabelLine, true);
    top_ += 10;
    add_plot();
    if (ends) add_end_labels(*ends);
    add_x_label();
    top_ += 6;
    add_lines(figure_.note, kNote, kLabelLine, true);
    layout_.height = top_ + 12;
    return std::move(layout_);
  }

 private:
  void add_text(PlacedText text) { layout_.texts.push_back(std::move(text)); }

  void add_lines(const std::string& text, TextSize size, double line, bool muted) {
    if (text.empty()) return;
    for (std::string& part : wrap(text, kWidth - 2 * kEdge, size)) {
      top_ += line;
      add_text({std::move(part), kEdge, top_ - kBaseline, Anchor::kStart, size, muted});
    }
  }

  void add_names() {
    for (const LegendEntry& entry : layout_.legend.entries) {
      double y = entry.y + kBaseline;
      for (const std::string& line : entry.lines) {
        add_text({line, entry.x + kSignWidth + kSignGap, y, Anchor::kStart, {kTickSize}});
        y += kTickLine;
      }
    }
  }

  void add_legend_rows() {
    layout_.legend = legend_rows(figure_, kEdge, kWidth - kEdge);
    if (layout_.legend.entries.empty()) return;
    top_ += 6;
    for (LegendEntry& entry : layout_.legend.entries) entry.y += top_;
    top_ += layout_.legend.size + 4;
    add_names();
  }

  void add_end_labels(const Legend& ends) {
    layout_.legend = ends;
    for (LegendEntry& entry : layout_.legend.entries) {
      entry.x += layout_.right;
      entry.y += layout_.top;
    }
    add_names();
  }

  void add_plot() {
    layout_.top = top_;
    layout_.bottom = top_ + kPlotHeight;
    layout_.y = y_axis(figure_, layout_.bottom, layout_.top);
    layout_.x = x_axis(figure_, layout_.left, layout_.right);
    layout_.bars = place_bars(figure_, layout_.x.scale, layout_.y.scale);
    for (const Tick& tick : layout_.y.ticks) {
      add_text({tick.lines.front(), layout_.left - 8, tick.place + kBaseline, Anchor::kEnd,
          {kTickSize}});
    }
    for (const Bar& bar : layout_.bars) {
      if (bar.value.empty()) continue;
      add_text({bar.value, (bar.left + bar.right) / 2, bar.value_y, Anchor::kMiddle, {kValueSize}});
    }
    top_ = layout_.bottom + 6;
    layout_.x.upright ? add_upright_ticks() : add_x_ticks();
    add_remark_on_nothing();
  }

  // A text in the middle of something near the edge is moved as far inside as it needs.
  void add_centred(const std::string& text, double x, double y, TextSize size, bool muted) {
    const double half = text_width(text, size) / 2 + 2;
    const double inside = std::max(half, std::min(x, kWidth - half));
    add_text({text, inside, y, Anchor::kMiddle, size, muted});
  }

  void add_x_ticks() {
    std::size_t most = 0;
    for (const Tick& tick : layout_.x.ticks) {
      for (std::size_t line = 0; line < tick.lines.size(); ++line) {
        const double y = top_ + static_cast<double>(line + 1) * kTickLine - 1;
        add_centred(tick.lines[line], tick.place, y, {kTickSize}, false);
      }
      most = std::max(most, tick.lines.size());
    }
    top_ += static_cast<double>(most) * kTickLine + 2;
  }

  void add_upright_ticks() {
    for (const Tick& tick : layout_.x.ticks) {
      double x =
          tick.place + kBaseline - static_cast<double>(tick.lines.size() - 1) * kTickLine / 2;
      for (const std::string& line : tick.lines) {
        add_text({line, x, top_ + 2, Anchor::kEnd, {kTickSize}, false, true});
        x += kTickLine;
      }
    }
    top_ += widest_label(layout_.x) + 4;
  }

  void add_x_label() {
    if (figure_.x.label.empty()) return;
    for (const std::string& line : wrap(figure_.x.label, kWidth - 2 * kEdge, kLabel)) {
      top_ += kLabelLine;
      add_centred(line, (layout_.left + layout_.right) / 2, top_, kLabel, true);
    }
    top_ += kBaseline;
  }

  void add_remark_on_nothing() {
    const auto is_empty = [](const Series& series) { return series.points.empty(); };
    if (!std::ranges::all_of(figure_.series, is_empty)) return;
    const double middle = (layout_.left + layout_.right) / 2;
    const double y = (layout_.top + layout_.bottom) / 2;
    add_centred("There are no values to show.", middle, y, kTitle, true);
  }

  const Figure& figure_;
  Layout layout_;
  double top_ = 10;
};

}  // namespace

double Scale::place(double value) const {
  const double share = logarithmic ? std::log(value / range.low) / std::log(range.high / range.low)
                                   : (value - range.low) / (range.high - range.low);
  return from + share * (to - from);
}

Range y_range(const Figure& figure) {
  const std::optional<Range> values = values_of(figure, true);
  if (!values) return figure.y.logarithmic ? Range{1, 10} : Range{0, 1};
  if (figure.y.logarithmic && figure.y.bytes) return nice_logarithmic_byte_range(*values);
  if (figure.y.logarithmic) return nice_logarithmic_range(*values);
  Range range =
      linear_y_range(*values, std::ranges::any_of(figure.series, is_bars), figure.y.bytes);
  if (figure.y.most && values->high <= *figure.y.most)
    range.high = std::min(range.high, *figure.y.most);
  return range;
}

std::optional<std::vector<double>> spread(
    const std::vector<double>& wanted, double gap, Range within) {
  if (wanted.empty()) return wanted;
  const double room = within.high - within.low - gap * static_cast<double>(wanted.size() - 1);
  if (room < 0) return std::nullopt;
  // Without the gaps, the task is the nearest row of numbers that does not fall: blocks in the
  // wrong order are joined until none is left.
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    blocks.push_back({wanted[i] - gap * static_cast<double>(i), 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].first() > blocks.back().first()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back() = {blocks.back().sum + last.sum, blocks.back().count + last.count};
    }
  }
  std::vector<double> places;
  for (const Block& block : blocks) {
    const double first = std::clamp(block.first(), within.low, within.low + room);
    for (std::size_t i = 0; i < block.count; ++i) {
      places.push_back(first + gap * static_cast<double>(places.size()));
    }
  }
  return places;
}

Layout lay_out(const Figure& figure) { return Composer(figure).compose(); }

}  // namespace lockstep::plot
