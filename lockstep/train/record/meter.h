#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/train/record/metrics.h"

namespace lockstep {

/// Adds up losses and times of steps without looking at them: nothing waits for a device until
/// read().
class Meter {
 public:
  explicit Meter(ProcessGroup world);

  /// Counts from zero again.
  void restart();

  /// Adds a batch: the mean loss over this rank's samples.
  void add(const torch::Tensor& loss, std::int64_t samples);
  /// Counts a step of one batch or several. If a scaler left it out, and its loss overflowed, it
  /// counts as the mean of the others.
  void add_step(bool is_taken = true);
  void add_data_seconds(double seconds) { data_seconds_ += seconds; }

  std::int64_t steps() const { return steps_; }

  /// Returns what this rank has added up since it last restarted, without the others: what a
  /// snapshot keeps of an interval that is not over.
  MeterReading part() const;

  /// Goes on from what part() gave.
  void restore(const MeterReading& part);

  /// Sums over all ranks and restarts. A collective. `comm_seconds` counts from the start of the
  /// run.
  MeterReading read(double comm_seconds);

 private:
  ProcessGroup world_;
  torch::Tensor loss_sum_, loss_sum_before_;  // before: at the end of the last step
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0, samples_before_ = 0;
  std::int64_t left_out_ = 0;  // samples that the loss does not count
  double data_seconds_ = 0;
  double comm_seconds_read_ = 0;
  double seconds_before_ = 0;  // of the interval, before a restart of the run
  Stopwatch watch_;
};

/// Packs what part() returned into five numbers, as files of ranks in snapshots hold them.
torch::Tensor packed(const MeterReading& part);

/// Reads what packed() made. Throws DataError for anything else.
MeterReading unpacked(const torch::Tensor& numbers);

}  // namespace lockstep
