#pragma once

#include <optional>

#include "lockstep/train/options/snapshot_interval.h"
#include "lockstep/train/snapshot/snapshot_files.h"
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

  /// Tells the launcher whether it would pay, after `lost` (what was trained since the newest
  /// durable snapshot) to save alone rather than to compute that again. `cost` is that of a
  /// snapshot, if one was measured.
  void consider(const TrainingProgress& lost, const std::optional<SnapshotCost>& cost);

  /// Saves the run as it is after its last whole step, if it would pay. Says on stderr what became
  /// of it; throws nothing. No collective.
  void save() noexcept;

 private:
  bool is_finite() const;
  bool save_whole();

  TrainRun& run_;
  bool is_possible_;
  bool pays_ = false;
  double usual_seconds_;  // of a snapshot of which none was measured
};

}  // namespace lockstep
