// The part of Trainer that passes over the data once.

#include <cmath>

#include <ATen/ops/full.h>

#include "lockstep/core/error.h"
#include "lockstep/train/input/loader_warning.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

double maximum(double value, const ProcessGroup& world) {
  const torch::Tensor tensor = at::full({1}, value, torch::kDouble);
  world.all_reduce(tensor, ReduceOp::kMax).wait();
  return tensor.item<double>();
}

}  // namespace

EpochSummary Trainer::train_epoch() {
  replica_->set_training(true);
  groups_.world.barrier().wait();
  since_epoch_.restart();
  const EpochRule rule = epoch_rule();
  position_.epoch_samples =
      position_.epoch_samples > 0 ? position_.epoch_samples : epoch_samples(rule);
  batches_ = batches_left(rule, position_);
  const bool by_steps = has_length(options_.optimizer.schedule.kind) && !options_.limits.epochs;
  schedule_step_ = by_steps ? step_ : schedule_step(rule, position_);
  const Loader loader = train_loader();
  announce_rest();
  train_steps(loader);
  groups_.world.barrier().wait();
  const double seconds =
      maximum(start_.state.epoch_seconds + since_epoch_.seconds(), groups_.world);
  start_.state.epoch_seconds = 0;
  return {
      .epoch = position_.epoch,
      .train_seconds = seconds,
      .train_loss = epoch_total_.loss(),
      .samples = epoch_total_.samples,
      .samples_per_s = static_cast<double>(epoch_total_.samples) / seconds};
}

void Trainer::train_steps(const Loader& loader) {
  if (meter_.steps() == 0) meter_.restart();  // else an interval goes on that a snapshot cut
  const bool is_over = !summary_.stopped_by.empty() || batches_.batches == 0;
  if (is_over) return end_steps();
  const EpochRule rule = epoch_rule();
  Stopwatch waiting;
  std::int64_t samples = 0;
  auto batch = loader.begin();
  for (std::int64_t number = 0;; ++number, waiting.restart(), ++batch) {
    meter_.add_data_seconds(waiting.seconds());
    const StepPart part = step_part(batches_, number);
    meter_.add(replica_->backward(*batch, part), batch->target.size(0));
    samples += batch->target.size(0);
    if (!part.is_last) continue;
    make_step();
    position_ = advanced(position_, rule, samples);
    samples = 0;
    const bool epoch_is_over = number + 1 == batches_.batches;
    after_step(epoch_is_over);
    if (epoch_is_over || !summary_.stopped_by.empty()) return;
  }
}

void Trainer::make_step() {
  replica_->update(scheduler_.lr(schedule_step_));
  if (ema_) ema_->update();
  ++step_;
  ++schedule_step_;
  meter_.add_step();
  progress_.step();
  if (page_) page_->report(step_);
}

// A line for a whole interval belongs to the course of training and comes before the snapshot; one
// for a part of it, because the run ends here, comes after: who goes on makes the whole line.
void Trainer::after_step(bool epoch_is_over) {
  look_at_limits(epoch_is_over);
  if (epoch_is_over || step_ % options_.log_interval == 0) log_interval();
  if (!summary_.stopped_by.empty()) {
    save_snapshot(false);
    end_steps();
  } else if (!epoch_is_over && snapshot_due()) {
    save_snapshot(false);
  }
}

void Trainer::end_steps() {
  if (signal_ == 0 && meter_.steps() > 0) log_interval();
}

std::optional<double> Trainer::loss_scale() const {
  if (options_.precision != Precision::k16Mixed) return std::nullopt;
  return replica_->loss_scale();
}

void Trainer::log_interval() {
  const MeterReading reading = meter_.read(replica_->communication_seconds());
  progress_.measured(reading.loss(), reading.samples_per_second());
  tell_of_bad_images();
  tell_of_slow_loader(reading);
  record(
      {.elapsed = elapsed(),
       .epoch = position_.epoch,
       .step = step_,
       .split = "train",
       .loss = reading.loss(),
       .lr = scheduler_.lr(schedule_step_ - 1),
       .samples_per_s = reading.samples_per_second(),
       .step_ms = reading.milliseconds_a_step(reading.seconds),
       .data_ms = reading.milliseconds_a_step(reading.data_seconds),
       .comm_ms = reading.milliseconds_a_step(reading.comm_seconds),
       .loss_scale = loss_scale()});
  // The sum is over all ranks, so all of them leave here together.
  if (!std::isfinite(reading.loss())) {
    throw DivergedError(concat(
        "train: the loss became ", std::isnan(reading.loss()) ? "NaN" : "infinite", " in epoch ",
        position_.epoch, ", within the ", reading.steps, " steps up to step ", step_,
        "; try a smaller --lr than ", options_.optimizer.lr));
  }
  epoch_total_ += reading;
}

Loader Trainer::train_loader() const {
  return {
      data_.train,
      sampler_.epoch(position_.epoch - 1, position_.samples),
      batch_size(),
      {.dtype = replica_->image_type(),
       .seed = static_cast<std::uint64_t>(options_.seed),
       .epoch = position_.epoch - 1,
       .workers = workers_}};
}

EpochRule Trainer::epoch_rule() const {
  return {
      .samples = data_.train->size(),
      .replicas = groups_.replicas.size(),
      .batch_size = batch_size(),
      .limit_batches = options_.limit_train_batches,
      .batches_a_step = options_.grad_accum_steps};
}

// By the rank that met them.
void Trainer::tell_of_bad_images() {
  for (const std::string& line : bad_images_.news()) progress_.warn(line);
}

void Trainer::tell_of_slow_loader(const MeterReading& reading) {
  if (told_of_slow_loader_ || groups_.world.rank() != 0) return;
  if (const auto warning = slow_loader_warning(reading, workers_)) {
    progress_.warn(*warning);
    told_of_slow_loader_ = true;
  }
}

void Trainer::announce_rest() {
  const std::int64_t epoch = position_.epoch, steps = steps_of(batches_left(epoch_rule(), {}));
  progress_.begin_epoch(epoch, options_.limits.epochs, steps, steps - steps_of(batches_));
  const std::int64_t epochs_left = options_.limits.epochs.value_or(epoch) - epoch;
  const std::int64_t at_the_end = options_.val_interval < 0 ? 0 : 1;
  const std::int64_t between = options_.val_interval > 0 ? epochs_left : 0;
  progress_.set_later(epochs_left * steps, between + at_the_end);
}

}  // namespace lockstep
