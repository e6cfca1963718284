#pragma once

#include <cstdint>

namespace lockstep {

/// Is what some steps came to, over all ranks.
struct MeterReading {
  std::int64_t steps = 0;
  std::int64_t samples = 0;  ///< of all ranks together
  double loss_sum = 0;       ///< over these samples
  double seconds = 0;        ///< on this rank
  double data_seconds = 0;   ///< of them, waiting for data
  double comm_seconds = 0;   ///< of them, waiting for other ranks in backward

  double loss() const { return loss_sum / static_cast<double>(samples); }
  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  double milliseconds_a_step(double part) const { return 1e3 * part / static_cast<double>(steps); }

  /// Adds what later steps came to.
  MeterReading& operator+=(const MeterReading& later) {
    steps += later.steps;
    samples += later.samples;
    loss_sum += later.loss_sum;
    seconds += later.seconds;
    data_seconds += later.data_seconds;
    comm_seconds += later.comm_seconds;
    return *this;
  }

  friend bool operator==(const MeterReading&, const MeterReading&) = default;
};

}  // namespace lockstep
