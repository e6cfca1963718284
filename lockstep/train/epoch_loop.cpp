#include "lockstep/train/epoch_loop.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {

StepUndo::StepUndo(const TrainRun& run)
    : random_(random_state(run.devices)), meter_(run.meter.sums()) {
  const auto parameters = run.replica->parameters();
  for (const auto& item : run.replica->state()) {
    const torch::Tensor& tensor = item.value();
    const auto is_it = [&](const torch::Tensor& parameter) { return parameter.is_same(tensor); };
    if (std::none_of(parameters.begin(), parameters.end(), is_it))
      buffers_.emplace_back(tensor.detach(), tensor.detach().clone());
  }
}

void StepUndo::take_back(TrainRun& run) const {
  for (const auto& [buffer, before] : buffers_) buffer.copy_(before);
  restore_random_state(random_, run.devices);
  run.meter.take_back(meter_);
}

namespace {

constexpr const char* kInputSpan = "batch";

Loader::Iterator first_batch(const Loader& loader) {
  const SpanScope span(Activity::kInput, kInputSpan);
  return loader.begin();
}

void next(Loader::Iterator& batch) {
  const SpanScope span(Activity::kInput, kInputSpan);
  ++batch;
}

}  // namespace

EpochLoop::EpochLoop(TrainRun& run, StepObserver& observer)
    : run_(run),
      observer_(observer),
      sampler_(run.data.train->size(), run.groups.replicas,
          {.shuffle = true, .seed = static_cast<std::uint64_t>(run.options.seed)}) {}

EpochSummary EpochLoop::pass() {
  run_.replica->set_training(true);
  run_.groups.world.barrier().wait();
  run_.clock.begin_epoch();
  begin_epoch();
  train_steps(loader());
  run_.state.skipped_steps += run_.replica->take_skipped_steps();
  run_.groups.world.barrier().wait();
  double seconds = run_.clock.read().epoch;
  maximize({&seconds}, run_.groups.world);
  run_.clock.end_epoch();
  const MeterReading& total = run_.state.epoch_total;
  const double samples_per_s = static_cast<double>(total.samples) / seconds;
  return {.epoch = run_.state.position.epoch,
      .train_seconds = seconds,
      .train_loss = total.loss(),
      .samples = total.samples,
      .samples_per_s = samples_per_s,
      .tokens_per_s = tokens_per_second(samples_per_s)};
}

std::optional<double> EpochLoop::tokens_per_second(double samples_per_s) const {
  const std::vector<data::TensorForm> targets = run_.data.train->targets();
  if (task_kind(run_.options, targets) != TaskKind::kTokens) return std::nullopt;
  return samples_per_s * static_cast<double>(targets.front().elements());
}

void EpochLoop::begin_epoch() {
  RunState& state = run_.state;
  const EpochRule rule = run_.epoch_rule();
  if (state.position.epoch_samples <= 0) state.position.epoch_samples = epoch_samples(rule);
  batches_ = batches_left(rule, state.position);
  state.schedule_step = schedule_step_now();
  announce_rest();
}

// A schedule that only --max-steps gives a length knows no epochs.
std::int64_t EpochLoop::schedule_step_now() const {
  const TrainOptions& options = run_.options;
  const bool by_steps = has_length(options.optimizer.schedule.kind) && !options.limits.epochs;
  return by_steps ? run_.state.step : schedule_step(run_.epoch_rule(), run_.state.position);
}

void EpochLoop::train_steps(const Loader& loader) {
  if (run_.meter.steps() == 0) run_.meter.restart();  // else an interval goes on that was cut
  const Course course = observer_.course();
  if (course != Course::kGoesOn || batches_.batches == 0) return end_epoch_early(course);
  // Where a rank saved alone after it had lost the others between a step and its line.
  if (run_.meter.steps() > 0 && run_.state.step % run_.options.log_interval == 0) log_interval();
  const EpochRule rule = run_.epoch_rule();
  Stopwatch waiting;
  std::int64_t samples = 0;
  if (run_.profiler) run_.profiler->begin_step();
  auto batch = first_batch(loader);
  for (std::int64_t number = 0;; ++number, waiting.restart(), next(batch)) {
    run_.meter.add_data_seconds(waiting.seconds());
    const StepPart part = step_part(batches_, number);
    if (part.number == 0 && (!part.is_last || observer_.may_undo_step())) undo_.emplace(run_);
    run_.meter.add(run_.replica->backward(*batch, part, run_.state.step), batch->size());
    samples += batch->size();
    sign_of_life();
    if (!part.is_last) {
      if (observer_.after_part() != Course::kInterrupted) continue;
      // A step of many parts may take longer than a scheduler waits.
      undo_step();
      return observer_.save_step(true);
    }
    make_step(*batch, part);
    run_.state.position = advanced(run_.state.position, rule, samples);
    run_.state.schedule_step = schedule_step_now();
    samples = 0;
    const bool epoch_is_over = number + 1 == batches_.batches;
    end_step(epoch_is_over);
    if (run_.profiler) run_.profiler->end_step(run_.replica->chain_input(*batch));
    if (epoch_is_over || observer_.course() != Course::kGoesOn) return;
    if (run_.profiler) run_.profiler->begin_step();
  }
}

void EpochLoop::undo_step() {
  if (undo_) undo_->take_back(run_);
  undo_.reset();
}

void EpochLoop::make_step(const Batch& batch, StepPart part) {
  RunState& state = run_.state;
  observer_.before_step();
  const double lr = run_.scheduler.lr(state.schedule_step, state.plateau);
  const torch::Tensor skipped = run_.replica->update(lr);
  while (++part.turn < run_.replica->turns()) {
    run_.meter.add_loss(run_.replica->backward(batch, part, state.step), batch.size());
    run_.replica->update(lr, part.turn);
  }
  last_lr_ = lr;
  if (run_.ema) {
    const SpanScope span(Activity::kOptimizer, "average of the weights");
    run_.ema->update();
  }
  ++state.step;
  run_.meter.add_step(skipped);
  undo_.reset();
  run_.log.step(state.step);
}

// A line for a whole interval belongs to the course of training and comes before the snapshot; one
// for a part of it, because the run ends here, comes after: a resumed run logs the whole interval.
void EpochLoop::end_step(bool epoch_is_over) {
  const Course course = observer_.after_step(epoch_is_over);
  if (epoch_is_over || run_.state.step % run_.options.log_interval == 0) log_interval();
  if (course != Course::kGoesOn) {
    observer_.save_step(true);
    end_epoch_early(course);
  } else if (!epoch_is_over) {
    observer_.save_step(false);
  }
}

void EpochLoop::end_epoch_early(Course course) {
  if (course != Course::kInterrupted && run_.meter.steps() > 0) log_interval();
}

void EpochLoop::log_interval() {
  const MeterReading reading = run_.meter.read(run_.replica->communication_seconds());
  const MetricRecord line = record_of(reading);
  run_.log.progress().measured(line);
  run_.log.warn_of_bad_images();
  run_.log.warn_of_slow_loader(reading, run_.workers);
  run_.log.record(line);
  // The sum is over all ranks, so all of them leave here together.
  if (!std::isfinite(reading.loss())) {
    if (run_.replica->may_recover()) return;
    run_.diverged(concat("the loss became ", std::isnan(reading.loss()) ? "NaN" : "infinite",
        " within the last ", reading.steps, " steps"));
  }
  if (run_.replica->loss_scale() < 1)
    run_.diverged("gradients overflowed whatever the loss was multiplied by");
  run_.state.epoch_total += reading;
}

MetricRecord EpochLoop::record_of(const MeterReading& reading) const {
  const RunState& state = run_.state;
  const std::int64_t last_step = std::max<std::int64_t>(state.schedule_step - 1, 0);
  MetricRecord record{.elapsed = run_.clock.read().elapsed,
      .epoch = state.position.epoch,
      .step = state.step,
      .split = "train",
      .scores = {.loss = reading.loss()},
      .lr = last_lr_.value_or(run_.scheduler.lr(last_step, state.plateau)),
      .samples_per_s = reading.samples_per_second(),
      .tokens_per_s = tokens_per_second(reading.samples_per_second()),
      .step_ms = reading.milliseconds_a_step(reading.seconds),
      .data_ms = reading.milliseconds_a_step(reading.data_seconds),
      .comm_ms = reading.milliseconds_a_step(reading.comm_seconds)};
  if (run_.options.precision == Precision::k16Mixed) record.loss_scale = run_.replica->loss_scale();
  return record;
}

Loader EpochLoop::loader() const {
  const EpochPosition& position = run_.state.position;
  return {run_.data.train, sampler_.epoch(position.epoch - 1, position.samples), run_.batch_size(),
      {.dtype = run_.replica->image_type(),
          .seed = static_cast<std::uint64_t>(run_.options.seed),
          .epoch = position.epoch - 1,
          .workers = run_.workers,
          .pinned = !run_.replica->device().is_cpu(),
          .channels_last = true,
          .device = run_.replica->device(),
          .resident = run_.resident.of(*run_.data.train)}};
}

void EpochLoop::announce_rest() {
  const TrainOptions& options = run_.options;
  const std::int64_t epoch = run_.state.position.epoch;
  const EpochRule rule = run_.epoch_rule();
  const std::int64_t steps = steps_of(batches_left(rule, {}));
  // One that another number of ranks began may take more or fewer.
  const std::int64_t of_this =
      steps_of(batches_left(rule, {.epoch_samples = run_.state.position.epoch_samples}));
  run_.log.progress().begin_epoch(
      epoch, options.limits.epochs, of_this, of_this - steps_of(batches_));
  run_.log.progress().set_rest(rest_of_run(options.limits,
      {.epoch = epoch,
          .steps_made = run_.state.step,
          .steps_left = steps_of(batches_),
          .steps_an_epoch = std::max<std::int64_t>(steps, 1),
          .seconds = run_.clock.read().training},
      options.val_interval));
}

}  // namespace lockstep
