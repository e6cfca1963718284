#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/record/metrics.h"

namespace lockstep {

/// The losses and times of steps, added up without looking at them: nothing waits for a device
/// until read().
class Meter {
 public:
  explicit Meter(ProcessGroup world);

  /// Counts from zero again.
  void restart();

  /// Adds a batch: the mean loss over this rank's samples.
  void add(const torch::Tensor& loss, std::int64_t samples);
  /// Adds another loss of a batch that was added already.
  void add_loss(const torch::Tensor& loss, std::int64_t samples);
  /// Counts a step of one batch or several. If a scaler left it out, so that `skipped` is 1, and
  /// its loss overflowed, it counts as the mean of the others.
  void add_step(const torch::Tensor& skipped = {});
  void add_data_seconds(double seconds) { data_seconds_ += seconds; }

  std::int64_t steps() const { return steps_; }

  /// Returns what this rank has added up since it last restarted, without the others: what a
  /// snapshot keeps of an interval that is not over.
  MeterReading part() const;

  /// Returns packed(part()) where the losses are: waits for no device.
  torch::Tensor packed_part() const;

  /// Goes on from what part() gave.
  void restore(const MeterReading& part);

  /// The sums that batches add to, at one moment.
  struct Sums {
    torch::Tensor of_device;
    std::int64_t samples = 0;
    double data_seconds = 0;
  };

  /// Returns the sums, to take back the batches of a step that is abandoned.
  Sums sums() const;
  void take_back(const Sums& sums);

  /// Sums over all ranks and restarts. A collective. `comm_seconds` counts from the start of the
  /// run.
  MeterReading read(double comm_seconds);

 private:
  void follow(const torch::Device& device);
  void leave_out_overflow(const torch::Tensor& skipped);

  ProcessGroup world_;
  // The losses' sum and how many samples it does not count; before: at the end of the last step.
  torch::Tensor sums_, sums_before_;
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0, samples_before_ = 0;
  double data_seconds_ = 0;
  double comm_seconds_read_ = 0;
  double seconds_before_ = 0;  // of the interval, before a restart of the run
  Stopwatch watch_;
};

/// Returns the part that a rank goes on from, of what `all` came to on other ranks. Parts differ by
/// a sample at most: if this world is cut short too, any rank that is left speaks for all.
MeterReading share_of(const MeterReading& all, int rank, int ranks);

/// Packs what part() returned into five numbers, as files of ranks in snapshots hold them.
torch::Tensor packed(const MeterReading& part);

/// Reads what packed() made. Throws DataError for anything else.
MeterReading unpacked(const torch::Tensor& numbers);

}  // namespace lockstep
