#pragma once

#include <string>

namespace lockstep::bench::plot {

/// Writes a number of pixels with two digits at most, whatever the locale.
std::string coordinate(double pixels);

}  // namespace lockstep::bench::plot
