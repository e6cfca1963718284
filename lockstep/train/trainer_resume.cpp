// The part of Trainer that gives a new life what a snapshot kept.

#include <cmath>
#include <filesystem>
#include <utility>

#include <ATen/Context.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/snapshot_check.h"
#include "lockstep/formats/snapshot/snapshot_folder.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/snapshot/random_state.h"
#include "lockstep/train/snapshot/restore_tensors.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

MeterReading reading_of(const nn::NamedTensors& rank) {
  const torch::Tensor* const meter = rank.find("meter");
  if (meter == nullptr || meter->scalar_type() != torch::kDouble || meter->numel() != 5)
    throw DataError("train: the snapshot's file of a rank has no meter of five numbers");
  const auto* const numbers = meter->const_data_ptr<double>();
  return {
      .steps = static_cast<std::int64_t>(numbers[0]),
      .samples = static_cast<std::int64_t>(numbers[1]),
      .loss_sum = numbers[2],
      .seconds = numbers[3],
      .data_seconds = numbers[4]};
}

std::optional<nn::GradScalerState> scaler_of(const std::optional<ScalerRecord>& record) {
  if (!record) return std::nullopt;
  return nn::GradScalerState{
      .scale = record->scale,
      .growth_factor = record->growth_factor,
      .backoff_factor = record->backoff_factor,
      .growth_interval = record->growth_interval,
      .growth_tracker = record->growth_tracker};
}

bool has_metadata(
    const std::filesystem::path& file, const std::map<std::string, std::string>& metadata) {
  try {
    return read_safetensors(file).metadata() == metadata;
  } catch (const std::exception&) {
    return false;
  }
}

// A rank that was not there before draws numbers of its own.
std::uint64_t seed_of_new_rank(const RunState& state, int rank) {
  std::uint64_t mixed = static_cast<std::uint64_t>(state.seed) +
                        0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(state.step + 1) +
                        0xD1B54A32D192ED03U * static_cast<std::uint64_t>(rank + 1);
  mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31U);
}

}  // namespace

LrScheduler Trainer::make_scheduler() const {
  const std::int64_t batches_a_step = options_.grad_accum_steps * layout_.replicas;
  const double lr = scaled_lr(options_.optimizer, batches_a_step);
  const LrSettings& settings = options_.optimizer.schedule;
  return {
      make_lr_schedule(settings, lr, options_.limits, steps_of(batches_left(epoch_rule(), {}))),
      plateau_rule(settings, larger_is_better(options_.eval_metric))};
}

void Trainer::restore() {
  if (!start_.snapshot) return;
  const RunState& state = start_.state;
  step_ = state.step;
  position_ = state.position;
  epoch_total_ = state.epoch_total;
  seconds_ = state.training_seconds;
  scheduler_.restore(state.plateau);
  replica_->restore_scaler(scaler_of(state.scaler), state.skipped_steps);
  last_snapshot_ = progress_so_far();
  best_snapshot_ = state.best_snapshot;
  summary_.best = state.best;
  summary_.epochs = state.epochs;
  for (EpochSummary& epoch : summary_.epochs) epoch.validated = data_.validation != nullptr;
  summary_.resumed_from = start_.snapshot->path().string();
  if (continues(options_.output, options_.resume)) summary_.snapshot = summary_.resumed_from;
  restore_tensors_of(*start_.snapshot);
  if (recorder_) restore_best(start_.snapshot->path().parent_path().parent_path());
  restore_rank(*start_.snapshot);
  start_.snapshot.reset();
}

void Trainer::restore_tensors_of(const SnapshotReader& snapshot) {
  const nn::NamedTensors state = replica_->state();
  const Others others = groups_.stages.size() > 1 ? Others::kSkipped : Others::kRefused;
  const std::string path = snapshot.path().string();
  restore_tensors(state, snapshot.model(), path + ": model", others);
  restore_optimizer(replica_->optimizer(), state, snapshot.optimizer(), others);
  if (!ema_) return;
  restore_tensors(named_averages(), snapshot.model_ema(), path + ": model-ema", others);
  ema_->restore(ema_->averages(), start_.state.ema_updates);
}

bool Trainer::is_spread_as_before(const SnapshotReader& snapshot) const {
  const RunState& state = start_.state;
  return snapshot.ranks() == groups_.world.size() && state.world_size == groups_.world.size() &&
         state.replicas == groups_.replicas.size() && state.stages == layout_.stages;
}

// What the ranks had added up of an interval is shared out anew: the first has it all.
void Trainer::restore_rank(const SnapshotReader& snapshot) {
  if (is_spread_as_before(snapshot)) {
    const nn::NamedTensors own = snapshot.rank(groups_.world.rank());
    restore_random_state(own);
    return meter_.restore(reading_of(own));
  }
  at::manual_seed(seed_of_new_rank(start_.state, groups_.world.rank()));
  MeterReading all;
  for (int rank = 0; rank < snapshot.ranks(); ++rank) all += reading_of(snapshot.rank(rank));
  const int ranks_a_replica = std::max(1, start_.state.world_size / start_.state.replicas);
  const bool is_first = groups_.replicas.rank() == 0;
  meter_.restore(
      {.steps = all.steps / std::max(1, snapshot.ranks()),
       .samples = is_first ? all.samples / ranks_a_replica : 0,
       .loss_sum = is_first ? all.loss_sum / ranks_a_replica : 0,
       .seconds = all.seconds / std::max(1, snapshot.ranks())});
}

// A life that was lost may have written a better epoch's weights, which this one does not know; and
// a new folder has none yet.
void Trainer::restore_best(const std::filesystem::path& run) {
  const std::filesystem::path& file = best_weights_->file();
  if (!summary_.best) {
    std::filesystem::remove(file);
    return;
  }
  if (has_metadata(file, best_metadata())) return;
  try {
    const std::filesystem::path best = run / "snapshots" / best_snapshot_;
    const SnapshotReader snapshot({.path = best, .manifest = verify_snapshot(best), .refused = {}});
    nn::save_weights(ema_ ? snapshot.model_ema() : snapshot.model(), file, best_metadata());
  } catch (const std::exception& error) {
    progress_.warn(
        concat("best.safetensors may be of a later epoch than the best one: ", error.what()));
  }
}

}  // namespace lockstep
