#include "lockstep/plan/profile/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

using Point = CostCurve::Point;

double on_line(const Point& from, const Point& to, double batch) {
  const double share = (batch - from.batch) / (to.batch - from.batch);
  return from.seconds + share * (to.seconds - from.seconds);
}

// A noisy pair of points may fall; nothing becomes faster for ever.
double beyond(const Point& from, const Point& last, double batch) {
  return std::max(last.seconds, on_line(from, last, batch));
}

double below(const Point& first, const Point& next, double batch) {
  const double share = first.seconds * batch / first.batch;
  return std::clamp(on_line(first, next, batch), share, first.seconds);
}

}  // namespace

CostCurve::CostCurve(std::vector<Point> points) : points_(std::move(points)) {
  std::sort(points_.begin(), points_.end(),
      [](const Point& one, const Point& other) { return one.batch < other.batch; });
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const auto& [batch, seconds] = points_[i];
    check(batch > 0 && std::isfinite(batch), "plan: a cost has a batch of at least 1: ", batch);
    check(seconds >= 0 && std::isfinite(seconds), "plan: a cost is 0 or more seconds: ", seconds);
    check(i == 0 || batch > points_[i - 1].batch, "plan: a cost is given twice for the batch ",
        batch);
  }
}

CostCurve CostCurve::of_line(double fixed, double per_sample) {
  constexpr double kFar = 1 << 20;
  return CostCurve({{1, fixed + per_sample}, {kFar, fixed + kFar * per_sample}});
}

double CostCurve::operator()(double batch) const {
  if (points_.empty() || batch <= 0) return 0;
  if (points_.size() == 1) return points_[0].seconds * batch / points_[0].batch;
  if (batch < points_[0].batch) return below(points_[0], points_[1], batch);
  const auto next = std::find_if(
      points_.begin(), points_.end(), [&](const Point& point) { return batch <= point.batch; });
  if (next == points_.begin()) return next->seconds;
  if (next == points_.end()) return beyond(points_.end()[-2], points_.back(), batch);
  return on_line(next[-1], *next, batch);
}

CostCurve::Line CostCurve::line() const {
  if (points_.empty()) return {};
  if (points_.size() == 1) return {.per_sample = points_[0].seconds / points_[0].batch};
  const auto count = static_cast<double>(points_.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [batch, seconds] : points_) {
    x += batch / count;
    y += seconds / count;
    xx += batch * batch / count;
    xy += batch * seconds / count;
  }
  Line line{.per_sample = (xy - x * y) / (xx - x * x)};
  line.fixed = y - line.per_sample * x;
  double squares = 0;
  for (const auto& [batch, seconds] : points_) {
    const double off = line.fixed + line.per_sample * batch - seconds;
    if (seconds > 0) squares += off * off / (seconds * seconds) / count;
  }
  line.residual = std::sqrt(squares);
  return line;
}

CostCurve CostCurve::times(double factor) const {
  std::vector<Point> points = points_;
  for (Point& point : points) point.seconds *= factor;
  return CostCurve(std::move(points));
}

CostCurve operator+(const CostCurve& one, const CostCurve& other) {
  if (one.is_free()) return other;
  std::vector<Point> points = one.points();
  for (const Point& point : other.points()) {
    const bool is_there = std::any_of(
        points.begin(), points.end(), [&](const Point& each) { return each.batch == point.batch; });
    if (!is_there) points.push_back({point.batch, one(point.batch)});
  }
  for (Point& point : points) point.seconds += other(point.batch);
  return CostCurve(std::move(points));
}

}  // namespace lockstep::plan
