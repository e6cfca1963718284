#include "lockstep/bench/statistics/calibration.h"

#include <cstdint>

#include "lockstep/core/stopwatch.h"

namespace lockstep::bench {

double calibrate() {
  // Each step needs the one before, so that neither more units nor wider registers make it quicker.
  constexpr int kSteps = 12'000'000;
  static volatile std::uint64_t memory = 1;  // the compiler knows neither start nor use
  const Stopwatch watch;
  std::uint64_t value = memory;
  for (int step = 0; step < kSteps; ++step) {
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9;
  }
  memory = value;
  return watch.seconds();
}

}  // namespace lockstep::bench
