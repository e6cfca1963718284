#include "lockstep/report/plot/figure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep::bench::plot {
namespace {

// Beyond these a span of two values, or its logarithm, is no number any more.
constexpr double kLargest = 1e100;
constexpr double kSmallest = 1e-100;

bool is_name(const std::string& id) {
  const auto fits = [](char letter) {
    return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') ||
           ('0' <= letter && letter <= '9') || letter == '-' || letter == '_';
  };
  return !id.empty() && std::all_of(id.begin(), id.end(), fits);
}

void check_value(const std::string& where, const char* name, double value, bool logarithmic) {
  check(std::isfinite(value), where, name, " is ", value, "; leave out points that have no value");
  check(std::abs(value) <= kLargest, where, name, " is ", value, ", beyond ", kLargest);
  check(!logarithmic || value >= kSmallest, where, name, " is ", value,
      ", which has no place on a logarithmic axis");
  check(value == 0 || std::abs(value) >= kSmallest, where, name, " is ", value,
      ", too small to draw; make it 0");
}

void check_point(const Figure& figure, const Point& point, const std::string& where) {
  check_value(where, "x", point.x, figure.x.logarithmic);
  check_value(where, "y", point.y, figure.y.logarithmic);
  if (point.low) check_value(where, "low", *point.low, figure.y.logarithmic);
  if (point.high) check_value(where, "high", *point.high, figure.y.logarithmic);
  const double low = point.low.value_or(point.y);
  const double high = point.high.value_or(point.y);
  check(low <= point.y && point.y <= high, where, "y is ", point.y,
      ", outside of its interval from ", low, " to ", high);
  const std::size_t categories = figure.x.categories.size();
  check(categories == 0 || (point.x == std::floor(point.x) && 0 <= point.x &&
                               point.x < static_cast<double>(categories)),
      where, "x is ", point.x, ", no index of one of ", categories, " categories");
}

void check_series(const Figure& figure, const Series& series, const std::string& where) {
  if (series.style == Series::Style::kBars) {
    check(!figure.x.categories.empty(), where, ": bars need categories on the x axis");
    check(!figure.y.logarithmic, where,
        ": the length of a bar means nothing on a logarithmic axis; use markers");
  }
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    check_point(figure, series.points[i], concat(where, ", point ", i, ": "));
  }
}

}  // namespace

void check_figure(const Figure& figure) {
  check(is_name(figure.id), "figure '", figure.id,
      "': an id is made of letters, digits, - and _, for a file has its name");
  const std::string where = concat("figure '", figure.id, "'");
  check(figure.x.categories.empty() || !(figure.x.logarithmic || figure.x.bytes), where,
      ": an axis with categories is neither logarithmic nor in bytes");
  check(figure.y.categories.empty(), where, ": only the x axis may have categories");
  std::set<std::string> names;
  for (const Series& series : figure.series) {
    const std::string of_series = concat(where, ", series '", series.name, "'");
    check(names.insert(series.name).second, of_series, ": another series has the same name");
    check(!series.name.empty() || figure.series.size() == 1, of_series,
        ": one of several series must have a name");
    check_series(figure, series, of_series);
  }
}

}  // namespace lockstep::bench::plot
