#include "lockstep/report/plot/legend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "lockstep/report/plot/text_width.h"

namespace lockstep::bench::plot {
namespace {

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
  const auto furthest = std::max_element(series.points.begin(), series.points.end(),
      [](const Point& a, const Point& b) { return a.x < b.x; });
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

}  // namespace

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

}  // namespace lockstep::bench::plot
