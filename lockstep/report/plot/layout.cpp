#include "lockstep/report/plot/layout.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

constexpr double kShare = 0.8;
constexpr double kWidest = 56;
constexpr double kBetween = 1.5;
constexpr double kValueGap = 5;

bool is_bars(const Series& series) { return series.style == Series::Style::kBars; }

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
  return std::all_of(figure.series.begin(), figure.series.end(), is_bars) &&
         std::all_of(bars.begin(), bars.end(),
             [&](const Bar& bar) { return text_width(bar.value, {kValueSize}) + 2 <= width; });
}

}  // namespace

std::vector<Bar> place_bars(const Figure& figure, const Scale& x, const Scale& y) {
  const auto count = std::count_if(figure.series.begin(), figure.series.end(), is_bars);
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

namespace {

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
    const bool nothing = std::all_of(figure_.series.begin(), figure_.series.end(),
        [](const Series& series) { return series.points.empty(); });
    if (!nothing) return;
    const double middle = (layout_.left + layout_.right) / 2;
    const double y = (layout_.top + layout_.bottom) / 2;
    add_centred("There are no values to show.", middle, y, kTitle, true);
  }

  const Figure& figure_;
  Layout layout_;
  double top_ = 10;
};

}  // namespace

Layout lay_out(const Figure& figure) { return Composer(figure).compose(); }

}  // namespace lockstep::bench::plot
