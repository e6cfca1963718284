#include "lockstep/train/rescue.h"

#include <cmath>
#include <exception>
#include <iostream>

#include "lockstep/core/progress/own_slot.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/train/snapshot/lone_save.h"
#include "lockstep/train/state/run_part.h"

namespace lockstep {
namespace {

// To notice that the others are gone, and to be noticed.
constexpr double kNoticeSeconds = 0.5;
// A slow disk's, hashing and reading back included.
constexpr double kBytesPerSecond = 150e6;
// With what an optimizer like Adam keeps.
constexpr double kCopiesOfModel = 3;

bool holds_all(const TrainRun& run) {
  const ProcessGroup& world = run.groups.world;
  return world.size() > 1 && world.backend_name() != "threads" &&
         run.groups.replicas.size() == world.size() && !run.options.optimizer.sharded &&
         run.options.snapshots.rescue && run.options.snapshots.unit != SnapshotUnit::kNever;
}

double seconds_to_save(const nn::NamedTensors& state) {
  double bytes = 0;
  for (const auto& item : state) bytes += static_cast<double>(item.value().nbytes());
  return kCopiesOfModel * bytes / kBytesPerSecond;
}

// The others' sums are gone with them.
MeterReading as_of_all(MeterReading own, int ranks) {
  own.samples *= ranks;
  own.loss_sum *= ranks;
  return own;
}

}  // namespace

Rescue::Rescue(TrainRun& run)
    : run_(run),
      is_possible_(holds_all(run)),
      usual_seconds_(seconds_to_save(run.replica->state())) {}

void Rescue::consider(const TrainingProgress& lost, const std::optional<SnapshotCost>& cost) {
  if (!is_possible_) return;
  const double save = cost ? cost->stall_seconds + cost->background_seconds : usual_seconds_;
  pays_ = lost.steps > 0 && lost.seconds > kNoticeSeconds + save;
  report_rescue(pays_ ? RescueState::kPossible : RescueState::kNone);
}

void Rescue::save() noexcept {
  if (!pays_) return;
  report_rescue(RescueState::kUnderWay);
  bool is_saved = false;
  try {
    is_saved = is_finite() && save_whole();
    if (is_saved)
      std::cerr << "lockstep: rank " << run_.groups.world.rank()
                << " has lost its peers, and saved step " << run_.state.step << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "warning: step " << run_.state.step
              << " could not be saved after the loss of the other ranks: " << error.what()
              << std::endl;
  }
  report_rescue(is_saved ? RescueState::kDone : RescueState::kNone);
}

bool Rescue::is_finite() const {
  if (!run_.replica->may_recover() && !std::isfinite(run_.meter.part().loss_sum)) return false;
  for (const auto& item : run_.replica->state())
    if (!nn::is_finite(item.value())) return false;
  return true;
}

// As the only rank of a world would, so that no part is missing.
bool Rescue::save_whole() {
  run_.state.last_lines = run_.log.last_records();
  SnapshotPart part = run_part(run_, {}, /*looks_later=*/false);
  const int ranks = run_.groups.world.size();
  part.files[snapshot_rank_file_name(0)].tensors["meter"] =
      packed(as_of_all(run_.meter.part(), ranks));
  const std::int64_t step = run_.state.step;
  part.best = run_.state.best_snapshot == snapshot_name(step);
  return save_alone(run_.options.output, run_.options.snapshots.keep, step, part);
}

}  // namespace lockstep
