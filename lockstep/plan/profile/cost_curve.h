#pragma once

#include <vector>

namespace lockstep::plan {

/// The seconds that something takes, as a function of the batch, or of other amounts: straight
/// lines between those that were measured.
///
/// Beyond the largest batch the last line goes on. Below the smallest the first one does, but never
/// above what the smallest batch takes, nor below its share by samples. Nothing takes no time.
class CostCurve {
 public:
  struct Point {
    double batch = 0, seconds = 0;

    bool operator==(const Point&) const = default;
  };

  /// A straight line, the least squares through the points: fixed + batch * per_sample.
  struct Line {
    double fixed = 0, per_sample = 0;
    double residual = 0;  ///< root mean square of the points' distances, relative to the points
  };

  /// Takes no time at any batch.
  CostCurve() = default;

  /// Throws InvalidArgument unless batches are above 0 and differ, and seconds are 0 or more.
  explicit CostCurve(std::vector<Point> points);

  /// A cost that is known as a line: `fixed` seconds, and `per_sample` for each sample.
  static CostCurve of_line(double fixed, double per_sample);

  double operator()(double batch) const;

  /// Fits the line; one point gives a cost without a fixed part.
  Line line() const;

  CostCurve times(double factor) const;

  const std::vector<Point>& points() const { return points_; }
  bool is_free() const { return points_.empty(); }

  bool operator==(const CostCurve&) const = default;

 private:
  std::vector<Point> points_;  // by batch
};

/// Returns the sum of two costs, at the batches of both.
CostCurve operator+(const CostCurve& one, const CostCurve& other);

}  // namespace lockstep::plan
