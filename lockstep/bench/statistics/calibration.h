#pragma once

namespace lockstep::bench {

/// Gives the seconds that a fixed piece of arithmetic takes on one core now, about 0.02: a slow
/// clock or a busy neighbour shows in it.
double calibrate();

}  // namespace lockstep::bench
