#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/collectives/collective_panels.h"

namespace lockstep::bench {

/// Draws of each panel time, bus bandwidth and how many times as fast as Gloo over the size of the
/// message, on logarithmic axes.
std::vector<plot::Figure> collective_figures(const std::vector<CollectivePanel>& panels);

}  // namespace lockstep::bench
