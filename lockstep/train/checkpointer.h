#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_interval.h"
#include "lockstep/snapshot/snapshot_saver.h"
#include "lockstep/train/epoch_loop.h"
#include "lockstep/train/graceful_stop.h"
#include "lockstep/train/train_run.h"

namespace lockstep {

/// A rank's means to save what all ranks have trained when it loses them, so that their death costs
/// a step and not all since the last snapshot.
///
/// Note [Rescue]
/// Where every rank holds the whole model and the whole state of its optimizer, the ranks that
/// survive have all that a snapshot needs but what each rank alone knows: the others' parts of the
/// losses' sum since the last line of metrics, which is taken to be as this rank's. What a step
/// draws follows from its number, so nothing else is lost; the last lines of metrics, which rank 0
/// may have died before it wrote, are known to all. A rank that loses its peers in the
/// middle of a step takes it back: parameters change after the last collective of a step. Ranks
/// may have lost them after different steps; each of these is a state of the run, and the next
/// start goes on from the furthest. The launcher leaves the ranks alone for that: report_rescue().
class Rescue {
 public:
  explicit Rescue(TrainRun& run);

  /// Returns whether each rank has all that is to be saved, in a process of its own.
  bool is_possible() const { return is_possible_; }

  /// Tells the launcher whether saving alone would be cheaper than computing `lost` again, what was
  /// trained since the newest durable snapshot. `cost` is that of a
  /// snapshot, if one was measured.
  void consider(const TrainingProgress& lost, const std::optional<SnapshotCost>& cost);

  /// Saves the run as of its last whole step, if that pays. Reports the result on stderr; throws
  /// nothing. No collective.
  void save() noexcept;

 private:
  bool is_finite() const;
  bool save_whole();

  TrainRun& run_;
  bool is_possible_;
  bool pays_ = false;
  double usual_seconds_;  // of a snapshot of which none was measured
};

/// Decides, for all ranks after the same step, when the training ends and when it is saved.
class Checkpointer final : public StepObserver {
 public:
  /// What earlier starts of the run have reached may end it before its first step.
  explicit Checkpointer(TrainRun& run);

  Course course() const override;
  Course after_part() override;
  bool may_undo_step() const override { return rescue_.is_possible(); }
  void before_step() override { saver_.before_step(); }
  Course after_step(bool epoch_is_over) override;
  void save_step(bool is_last) override;

  /// Returns what to ask after each batch of an evaluation, of which every rank has as many as this
  /// or more: whether all ranks leave it here, because of a signal.
  std::function<bool()> interruption(std::int64_t batches);

  /// Ends the training after a peer has ended, if that was because of the signal that this rank has
  /// too, before either had a step to save; returns whether it was.
  bool ends_with_its_peers();

  /// Saves the run as it is after a whole step, after this rank has lost the others, if it holds
  /// all of it and that takes less time than what it saves. No collective.
  void rescue();

  /// Ends the training; the reason is that of summary.json.
  void end(const std::string& reason) { stopped_by_ = reason; }
  const std::string& stopped_by() const { return stopped_by_; }
  /// Returns the signal that interrupted the training; 0: none did.
  int signal() const { return signal_; }
  /// Returns whether what was trained is in a snapshot, or was there when this start began.
  bool is_saved() const;

  /// Moves on to the next epoch, and saves the run if it is time or the epoch was the best so far.
  /// An epoch in which steps or time ran out was saved as it was, so that a longer run goes on in
  /// it as if it had never ended: such a one `is_cut`.
  void end_epoch(bool is_cut, bool is_best);

  /// Waits until what was saved is durable. A collective.
  void finish();

  /// Returns the step of the newest snapshot that this start has made durable.
  std::optional<std::int64_t> last_saved() const { return saver_.last_saved(); }

 private:
  void agree(Agreement& agreement);
  void interrupt(int signal);
  TrainingProgress progress() const;
  bool is_due() const;
  void save(bool best);
  bool is_loss_finite() const;
  // Only the scaler can tell.
  bool loss_may_recover() const { return run_.options.precision == Precision::k16Mixed; }
  void consider_rescue();
  void report_warnings();

  TrainRun& run_;
  SnapshotSaver saver_;
  Agreement agreement_;
  bool looks_first_;                // before it saves, whether what it saves is finite
  double seconds_;                  // of training, as all ranks agreed last
  TrainingProgress last_snapshot_;  // that was begun
  TrainingProgress durable_;        // of the newest one that is
  Rescue rescue_;
  std::string stopped_by_;
  int signal_ = 0;
};

}  // namespace lockstep
