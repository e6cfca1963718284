#include "lockstep/train/input/loader_warning.h"

#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr double kWorthAWord = 0.2;            // of a step
constexpr double kShortestWaitSeconds = 1e-3;  // below it no worker could help

}  // namespace

std::optional<std::string> slow_loader_warning(const MeterReading& reading, int workers) {
  const double share = reading.data_seconds / reading.seconds;
  const double wait = reading.data_seconds / static_cast<double>(reading.steps);
  if (!(share >= kWorthAWord) || wait < kShortestWaitSeconds) return std::nullopt;
  return concat(
      "steps wait for images: ", std::lround(100 * share), " % of their time (data_ms ",
      std::lround(1e3 * wait), "), with --workers ", workers,
      "; more of them help if cores are idle, else a cheaper --augment or smaller images");
}

}  // namespace lockstep
