#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/train_run.h"

namespace lockstep {

/// A copy of the state that the parts of an optimizer step change before its end: buffers, random
/// numbers, the meter. Parameters and optimizer have changed nothing until then.
class StepUndo {
 public:
  /// Remembers the run as it is before a step.
  explicit StepUndo(const TrainRun& run);

  /// Rolls back a partial step, so that the run can be saved.
  void take_back(TrainRun& run) const;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers_;  // each with a copy
  nn::NamedTensors random_;
  Meter::Sums meter_;
};

/// The course of a training after a step.
enum class Course {
  kGoesOn,
  kEnds,        ///< a limit is reached
  kInterrupted  ///< by a signal: another start will go on from here
};

/// The part that decides after each optimizer step, for all ranks alike, whether training
/// continues, and saves it.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  virtual Course course() const = 0;

  /// Takes in a part of a step that is not its last, and returns whether training goes on with the
  /// next one: else the step is abandoned.
  virtual Course after_part() { return course(); }

  /// Returns whether any step may have to be taken back, not only one that is abandoned.
  virtual bool may_undo_step() const { return false; }

  /// Takes note that parameters, what the optimizer keeps and averages are about to change.
  virtual void before_step() {}

  /// Takes in a step and returns how training goes on.
  virtual Course after_step(bool epoch_is_over) = 0;

  /// Saves the run as it is after a step: the last one unless it is saved, others if it is time.
  virtual void save_step(bool is_last) = 0;
};

/// The loop over the training data.
class EpochLoop {
 public:
  EpochLoop(TrainRun& run, StepObserver& observer);

  /// Trains from where the run stands to the end of the epoch, or until the observer says that it
  /// ends, and returns what the epoch came to.
  ///
  /// Throws DivergedError when the loss is not a number, on all ranks together.
  EpochSummary pass();

  /// Rolls the run back to the end of its last whole step after an exception within a step, if the
  /// observer's may_undo_step() allows it.
  void undo_step();

 private:
  void begin_epoch();
  Loader loader() const;
  void train_steps(const Loader& loader);
  std::int64_t schedule_step_now() const;
  void make_step(const Batch& batch, StepPart part);
  void end_step(bool epoch_is_over);
  void end_epoch_early(Course course);
  void log_interval();
  std::optional<double> tokens_per_second(double samples_per_s) const;
  MetricRecord record_of(const MeterReading& reading) const;
  void announce_rest();

  TrainRun& run_;
  StepObserver& observer_;
  DistributedSampler sampler_;
  EpochBatches batches_;           // that are left of the epoch
  std::optional<StepUndo> undo_;   // of the step under way
  std::optional<double> last_lr_;  // of the last step, if this start made one
};

}  // namespace lockstep
