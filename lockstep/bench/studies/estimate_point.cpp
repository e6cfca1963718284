#include "lockstep/bench/studies/estimate_point.h"

namespace lockstep::bench {

plot::Point point_of(double x, const Estimate& estimate, double factor) {
  if (estimate.count < 2) return {x, factor * estimate.median};
  return {x, factor * estimate.median, factor * estimate.low, factor * estimate.high};
}

}  // namespace lockstep::bench
