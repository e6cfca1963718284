#pragma once

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/statistics/median.h"

namespace lockstep::bench {

/// Gives an estimate as a point of a figure, in a unit of which `factor` make one of its own; with
/// its interval, which one sample does not have.
plot::Point point_of(double x, const Estimate& estimate, double factor = 1);

}  // namespace lockstep::bench
