#pragma once

#include <string>

namespace lockstep {

/// Names what a run begins with.
enum class Resume {
  kNever,  ///< as if it were the first
  kAuto,   ///< the newest usable snapshot of its own folder; a fresh start where there is none
  kFrom,   ///< a snapshot that was named, or the newest of a run that was
};

struct ResumeSettings {
  Resume kind = Resume::kNever;
  std::string from = {};  ///< of kFrom: the folder of a run or of one snapshot
  bool again = false;     ///< ranks that were started again: their own folder comes before `from`
};

/// Names what the time from one snapshot to the next is counted in.
enum class SnapshotUnit {
  kNever,     ///< none at all: what is stopped is lost
  kNone,      ///< none but the last
  kSteps,     ///< optimizer steps
  kEpochs,    ///< epochs that are over
  kSeconds,   ///< of training
  kOverhead,  ///< chosen, so that saving takes this share of the time of training
};

/// Says when a run is saved, and what becomes of older snapshots.
struct SnapshotSettings {
  SnapshotUnit unit = SnapshotUnit::kOverhead;
  double count = 0.01;    ///< of the unit
  int keep = 2;           ///< the newest ones; the best one comes on top
  bool required = false;  ///< one that cannot be written ends the run
};

}  // namespace lockstep
