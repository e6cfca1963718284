#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// The start of a run.
enum class Resume {
  kNever,  ///< as if it were the first
  kAuto,   ///< the newest usable snapshot of its own folder; a fresh start where there is none
  kFrom,   ///< a snapshot that was named, or the newest of a run that was
};

struct ResumeSettings {
  Resume kind = Resume::kNever;
  std::string from = {};   ///< of kFrom: the folder of a run or of one snapshot
  bool again = false;      ///< ranks that were started again: their own folder comes before `from`
  bool overwrite = false;  ///< a run in the folder that cannot be resumed may be removed
};

/// The unit of the time from one snapshot to the next.
enum class SnapshotUnit {
  kNever,     ///< none at all: what is stopped is lost
  kNone,      ///< none but the last
  kSteps,     ///< optimizer steps
  kEpochs,    ///< epochs that are over
  kSeconds,   ///< of training
  kOverhead,  ///< chosen, so that saving takes this share of the time of training
};

/// The settings of when a run is saved, and of what becomes of older snapshots.
struct SnapshotSettings {
  SnapshotUnit unit = SnapshotUnit::kOverhead;
  double count = 0.01;    ///< of the unit
  int keep = 2;           ///< the newest ones; the best one comes on top
  bool required = false;  ///< one that cannot be written ends the run
  /// Hosts that keep each snapshot whole, where they do not share the folder; 0: they share it.
  int copies = 0;
  bool rescue = true;  ///< ranks that lose the others save what all have trained
};

/// The shortest time in seconds from one snapshot to the next that a share of time may choose.
inline constexpr double kLeastSnapshotSeconds = 30;

/// The time from one snapshot to the next.
struct SnapshotInterval {
  SnapshotUnit unit = SnapshotUnit::kOverhead;
  double count = 0.01;
};

/// Reads `500steps`, `2epochs`, `600s` (or `10m`, `1h30m`) or `none`.
///
/// Throws InvalidArgument that shows the accepted forms.
SnapshotInterval parse_snapshot_interval(const std::string& text);

/// Reads a share of the time of training: `1%`, `0.5%`; above 0 and at most 100 %. Gives 0.01 for
/// `1%`.
double parse_snapshot_overhead(const std::string& text);

/// Writes an interval as parse_snapshot_interval() reads it; a share of time as `1% of the time`.
std::string snapshot_interval_text(const SnapshotInterval& interval);

/// The progress of training over all restarts.
struct TrainingProgress {
  std::int64_t steps = 0;   ///< of the optimizer
  std::int64_t epochs = 0;  ///< that are over
  double seconds = 0;       ///< of training
};

/// The cost of one snapshot.
struct SnapshotCost {
  double stall_seconds = 0;       ///< in which the step stands still
  double background_seconds = 0;  ///< of a core that hashes and writes while training goes on
};

/// Gives the seconds from one snapshot to the next at which saving takes this share of the time; at
/// least kLeastSnapshotSeconds, also as long as no cost is known.
double seconds_between_snapshots(double share, const std::optional<SnapshotCost>& cost);

/// Says whether a snapshot is due `now`, if the last one (or the start) was at `last`.
///
/// Steps and epochs are due at multiples of their number, so a restart does not shift them.
bool is_snapshot_due(const SnapshotInterval& interval, const TrainingProgress& last,
    const TrainingProgress& now, const std::optional<SnapshotCost>& cost = std::nullopt);

}  // namespace lockstep
