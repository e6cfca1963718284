#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/data/device_images.h"
#include "lockstep/nn/ema.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/snapshot/run_lock.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/optim/lr_schedule.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/profile/step_profiler.h"
#include "lockstep/train/record/meter.h"
#include "lockstep/train/record/run_log.h"
#include "lockstep/train/state/resume.h"
#include "lockstep/train/state/run_state.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {

/// The clocks of a run, which go on where a snapshot stopped them.
class RunClock {
 public:
  explicit RunClock(const RunSeconds& before) : before_(before) {}

  void begin_training() { training_.restart(); }
  /// What an earlier start spent on its epoch does not count for the next one.
  void begin_epoch() {
    if (whole_epoch_) before_.epoch = 0;
    whole_epoch_.reset();
    epoch_.restart();
  }
  void end_epoch() { whole_epoch_ = read().epoch; }

  RunSeconds read() const {
    return {.elapsed = before_.elapsed + run_.seconds(),
        .training = before_.training + training_.seconds(),
        .epoch = whole_epoch_.value_or(before_.epoch + epoch_.seconds())};
  }

 private:
  RunSeconds before_;
  std::optional<double> whole_epoch_;
  Stopwatch run_, training_, epoch_;
};

/// One rank's part of a run: what it trains, on what, and where the training stands. EpochLoop,
/// Validator and Checkpointer work on it in turn.
struct TrainRun {
  /// Reads the data, makes the model, and goes on from a snapshot if the options say so; `command`
  /// is what command.txt shall say. Computes in `places`, of which there are as many as the layout
  /// gives a rank; without any on the CPU, where the calling thread is. A collective.
  TrainRun(TrainOptions options, const ProcessGroup& world, const std::vector<std::string>& command,
      const std::vector<Place>& places = {});

  /// Returns how the training set is cut into batches and steps.
  EpochRule epoch_rule() const;

  /// Returns the samples of a batch of this rank.
  std::int64_t batch_size() const { return epoch_rule().batch_size; }

  /// Returns whether no weight or running statistic of this rank is infinite or NaN.
  bool has_finite_weights() const;

  /// Throws DivergedError, on all ranks together, unless the weights of all are finite: no training
  /// can go on from others. A collective.
  void check_weights() const;

  /// Says what became infinite or NaN, and by when.
  std::string divergence(const std::string& what) const;

  /// Throws DivergedError with that.
  [[noreturn]] void diverged(const std::string& what) const;

  TrainOptions options;
  std::vector<torch::Device> devices;  ///< of its places
  Layout layout;
  RankGroups groups;
  nn::KernelScope kernels;
  Datasets data;
  int workers;                               ///< threads of this rank that load images
  std::unique_ptr<const RunLock> lock;       ///< of the run's folder, on rank 0
  SnapshotHosts hosts;                       ///< if they share no folder
  std::unique_ptr<const RunLock> host_lock;  ///< then, of the run's folder on another host
  StartingPoint start;
  std::unique_ptr<Replica> replica;
  data::ResidentSets resident;  ///< of `data`, where the replica takes its batches in
  std::optional<ModelEma> ema;
  LrScheduler scheduler;
  Meter meter;
  RunClock clock;
  RunLog log;
  RunState state;
  std::unique_ptr<StepProfiler> profiler;  ///< if the options ask for a profile

 private:
  void announce_start();
  void restore(const SnapshotReader& snapshot);
  void restore_rank(const SnapshotReader& snapshot);
};

}  // namespace lockstep
