#pragma once

#include <span>
#include <vector>

namespace lockstep::bench {

/// Tells which values lie far from the others, to be shown and never to be removed: those whose
/// modified z-score, 0.6745 |x - median| / MAD, is above the limit (Iglewicz and Hoaglin, 1993).
/// MAD is the median of the absolute deviations from the median; where more than half of the values
/// are equal and it is 0, their mean times 1.2533 stands in for MAD / 0.6745. Of fewer than three
/// values none is an outlier. A value that is not finite is an InvalidArgument.
std::vector<bool> outliers(std::span<const double> values, double limit = 3.5);

}  // namespace lockstep::bench
