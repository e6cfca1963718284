// The part of Trainer that lets all ranks stop or save after the same step.

#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/snapshot/optimizer_state.h"
#include "lockstep/train/snapshot/random_state.h"
#include "lockstep/train/snapshot/snapshot_files.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

torch::Tensor tensor_of(const MeterReading& part) {
  return at::tensor(
      {static_cast<double>(part.steps), static_cast<double>(part.samples), part.loss_sum,
       part.seconds, part.data_seconds},
      torch::kDouble);
}

std::optional<ScalerRecord> record_of(const std::optional<nn::GradScalerState>& state) {
  if (!state) return std::nullopt;
  return ScalerRecord{
      .scale = state->scale,
      .growth_factor = state->growth_factor,
      .backoff_factor = state->backoff_factor,
      .growth_interval = state->growth_interval,
      .growth_tracker = state->growth_tracker};
}

}  // namespace

void Trainer::look_at_limits(bool epoch_is_over) {
  if (step_ == options_.limits.steps) summary_.stopped_by = "max-steps";
  if (epoch_is_over || agreement_.is_due()) agree();
}

void Trainer::agree() {
  const SnapshotReport own = saver_.report();
  const Agreement::Numbers agreed = agreement_.maximum(
      {own_training_seconds(), static_cast<double>(stop_signal()), own[0], own[1], own[2], own[3]},
      options_.limits.seconds);
  seconds_ = agreed[0];
  if (saver_.in_flight()) saver_.advance({agreed[2], agreed[3], agreed[4], agreed[5]});
  tell_of_snapshots();
  if (!summary_.stopped_by.empty()) return;
  if (options_.limits.seconds && seconds_ >= *options_.limits.seconds) summary_.stopped_by = "time";
  if (agreed[1] == 0) return;
  signal_ = static_cast<int>(agreed[1]);
  summary_.stopped_by = "signal";
}

double Trainer::elapsed() const { return start_.state.elapsed + since_start_.seconds(); }

double Trainer::own_training_seconds() const {
  return start_.state.training_seconds + since_training_.seconds();
}

TrainingProgress Trainer::progress_so_far() const {
  return {.steps = step_, .epochs = position_.epoch - 1, .seconds = seconds_};
}

// One that time alone asks for can wait until the disk has the one before.
bool Trainer::snapshot_due() const {
  const SnapshotSettings& settings = options_.snapshots;
  if (settings.unit == SnapshotUnit::kOverhead && saver_.in_flight()) return false;
  return is_snapshot_due(
      {settings.unit, settings.count}, last_snapshot_, progress_so_far(), saver_.cost());
}

void Trainer::save_snapshot(bool best) {
  if (options_.snapshots.unit == SnapshotUnit::kNever) return;
  last_snapshot_ = progress_so_far();
  if (!is_finite_everywhere()) return;  // the next log line ends the run
  if (best) best_snapshot_ = snapshot_name(step_);
  saver_.save(step_, snapshot_part(best));
  tell_of_snapshots();
}

bool Trainer::is_finite_everywhere() const {
  const torch::Tensor overflows =
      at::full({1}, std::isfinite(meter_.part().loss_sum) ? 0.0 : 1.0, torch::kDouble);
  groups_.world.all_reduce(overflows, ReduceOp::kMax).wait();
  return overflows.item<double>() == 0;
}

SnapshotPart Trainer::snapshot_part(bool best) const {
  const nn::NamedTensors state = replica_->state();
  const SnapshotFileNames names = snapshot_file_names(
      {.rank = groups_.world.rank(),
       .replica = groups_.replicas.rank(),
       .stage = groups_.stages.rank(),
       .stages = groups_.stages.size(),
       .ranks = groups_.world.size(),
       .sharded_optimizer = options_.optimizer.sharded});
  SnapshotPart part;
  if (!names.model.empty()) part.files[names.model].tensors = state;
  if (ema_ && !names.model_ema.empty()) part.files[names.model_ema].tensors = named_averages();
  if (!names.optimizer.empty()) {
    part.files[names.optimizer] = content_of(optimizer_state(replica_->optimizer(), state));
  }
  nn::NamedTensors own = random_state();
  own.insert("meter", tensor_of(meter_.part()));
  part.files[names.rank].tensors = own;
  if (groups_.world.rank() == 0) part.state = to_json(run_state());
  part.best = best;
  return part;
}

nn::NamedTensors Trainer::named_averages() const {
  nn::NamedTensors averages("Tensor");
  auto average = ema_->averages().begin();
  for (const std::string& name : replica_->state().keys()) averages.insert(name, *average++);
  return averages;
}

RunState Trainer::run_state() const {
  const double epoch_seconds =
      position_.samples > 0 ? start_.state.epoch_seconds + since_epoch_.seconds() : 0;
  return {
      .step = step_,
      .position = position_,
      .schedule_step = schedule_step_,
      .seed = options_.seed,
      .world_size = groups_.world.size(),
      .replicas = groups_.replicas.size(),
      .stages = layout_.stages,
      .balance = replica_->balance(),
      .configuration = run_configuration(options_),
      .data =
          {.name = options_.data.name,
           .samples = data_.train->size(),
           .classes = data_.train->classes(),
           .fingerprint = data_.fingerprint},
      .scaler = record_of(replica_->scaler()),
      .plateau = scheduler_.plateau(),
      .ema_updates = ema_ ? ema_->updates() : 0,
      .skipped_steps = replica_->skipped_steps(),
      .elapsed = elapsed(),
      .training_seconds = own_training_seconds(),
      .epoch_seconds = epoch_seconds,
      .restarts = summary_.restarts,
      .best = summary_.best,
      .best_snapshot = best_snapshot_,
      .epochs = summary_.epochs,
      .epoch_total = epoch_total_};
}

void Trainer::finish_snapshots() {
  saver_.finish();
  tell_of_snapshots();
}

void Trainer::tell_of_snapshots() {
  for (const std::string& warning : saver_.take_warnings())
    if (recorder_) progress_.warn(warning);
}

}  // namespace lockstep
