#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"

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
  MeterReading& operator+=(const MeterReading& later);
};

/// Adds up losses and times of steps without looking at them: nothing waits for a device until
/// read().
class Meter {
 public:
  explicit Meter(ProcessGroup world);

  /// Begins to count anew.
  void restart();

  /// Adds a batch: the mean loss over this rank's samples.
  void add(const torch::Tensor& loss, std::int64_t samples);
  /// Counts a step of one batch or several.
  void add_step() { ++steps_; }
  void add_data_seconds(double seconds) { data_seconds_ += seconds; }

  std::int64_t steps() const { return steps_; }

  /// Sums over all ranks and restarts. A collective. `comm_seconds` counts from the start of the
  /// run.
  MeterReading read(double comm_seconds);

 private:
  ProcessGroup world_;
  torch::Tensor loss_sum_;
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0;
  double data_seconds_ = 0;
  double comm_seconds_read_ = 0;
  Stopwatch watch_;
};

}  // namespace lockstep
