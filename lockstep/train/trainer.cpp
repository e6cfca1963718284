#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/parallel/place/cores.h"
#include "lockstep/train/environment_report.h"
#include "lockstep/train/loader_warning.h"
#include "lockstep/train/parameters_hash.h"

namespace lockstep {
namespace {

double maximum(double value, const ProcessGroup& world) {
  const torch::Tensor tensor = at::full({1}, value, torch::kDouble);
  world.all_reduce(tensor, ReduceOp::kMax).wait();
  return tensor.item<double>();
}

Layout checked_layout(const TrainOptions& options, const ProcessGroup& world) {
  const Layout layout = plan_layout_in(options, world.size(), world.backend_name() == "threads");
  check_options(options, layout.thread_ranks > 1 ? 1 : world.size());
  return layout;
}

Task task_of(const TrainOptions& options, const Datasets& data) {
  const data::ImageShape shape = data.train->shape();
  return {{shape.channels, shape.height, shape.width}, model_classes(options, data)};
}

RunSummary begun_summary(const TrainOptions& options, const Layout& layout) {
  RunSummary summary;
  summary.model = options.model;
  summary.data = options.data.name;
  summary.parallel = name_of(options.parallel);
  summary.world_size = layout.replicas * layout.workers;
  summary.stages = layout.stages;
  summary.chunks = layout.micro_batches;
  summary.batch_size = options.batch_size;
  summary.precision = name_of(options.precision);
  summary.eval_metric = name_of(options.eval_metric);
  return summary;
}

// Of this thread: a rank that is pinned to one core has one.
int usable_cores() { return static_cast<int>(place::allowed_cores().size()); }

ProgressStyle style_of(const TrainOptions& options, int rank) {
  return rank == 0 ? options.progress : ProgressStyle::kNone;
}

}  // namespace

// Samples are dealt out among the replicas: the stages of one train on the same.
Trainer::Trainer(
    TrainOptions options,
    const ProcessGroup& world,
    const std::vector<std::string>& command,
    const std::vector<Place>& places)
    : options_(std::move(options)),
      layout_(checked_layout(options_, world)),
      groups_(make_rank_groups(world, layout_)),
      data_(load_datasets(options_)),
      workers_(workers_of(options_.loading, usable_cores(), data_.is_mere_copy)),
      bad_images_(data_.folders),
      replica_(make_replica(options_, layout_, task_of(options_, data_), groups_, places)),
      sampler_(
          data_.train->size(),
          groups_.replicas,
          {.shuffle = true, .seed = static_cast<std::uint64_t>(options_.seed)}),
      batches_(epoch_batches()),
      scheduler_(make_scheduler()),
      meter_(groups_.replicas),
      progress_(style_of(options_, world.rank())),
      summary_(begun_summary(options_, layout_)) {
  if (options_.ema) ema_.emplace(replica_->state().values(), *options_.ema);
  if (world.rank() == 0) {
    recorder_.emplace(options_, command, environment_report(world));
    progress_.announce(concat(
        options_.model, ", ", name_of(options_.parallel), ": ", describe(options_, layout_)));
    tell_of_start();
  }
}

void Trainer::tell_of_start() {
  const StartWeights& start = replica_->start();
  if (!start.remark.empty()) progress_.announce(start.remark);
  if (!start.warning.empty()) progress_.warn(start.warning);
  if (options_.precision == Precision::k16Mixed) {
    progress_.warn(
        "--precision 16-mixed is for GPUs: on a CPU bf16-mixed is the quicker one, and does not "
        "overflow");
  }
}

RunSummary Trainer::run() {
  try {
    train();
  } catch (const DivergedError& error) {
    fail(error);
    // All ranks are here. The first to leave ends the run, so none may before rank 0 has written
    // its files.
    groups_.world.barrier().wait();
    throw;
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
  if (recorder_) recorder_->finish(summary_);
  return summary_;
}

void Trainer::train() {
  groups_.world.barrier().wait();
  budget_.emplace(options_.limits.seconds, groups_.world);
  for (std::int64_t epoch = 1; summary_.stopped_by.empty(); ++epoch) {
    EpochSummary result = train_epoch(epoch);
    if (summary_.stopped_by.empty() && epoch == options_.limits.epochs) {
      summary_.stopped_by = "epochs";
    }
    if (evaluation_due(epoch)) evaluate_epoch(result);
    summary_.epochs.push_back(result);
    progress_.end_epoch(result);
  }
  test();
  save_last();
  summary_.steps = step_;
  summary_.skipped_steps = replica_->skipped_steps();
  summary_.bad_images = bad_images_.count(groups_.world);
  summary_.parameters_hash =
      agreed_parameters_hash(replica_->parameters(), groups_.replicas, groups_.stages);
}

EpochSummary Trainer::train_epoch(std::int64_t epoch) {
  replica_->set_training(true);
  groups_.world.barrier().wait();
  const Stopwatch watch;
  const Loader loader = train_loader(epoch);
  announce_rest(epoch, steps_of(batches_));
  const MeterReading total = train_steps(loader, epoch);
  groups_.world.barrier().wait();
  const double seconds = maximum(watch.seconds(), groups_.world);
  return {
      .epoch = epoch,
      .train_seconds = seconds,
      .train_loss = total.loss(),
      .samples = total.samples,
      .samples_per_s = static_cast<double>(total.samples) / seconds};
}

MeterReading Trainer::train_steps(const Loader& loader, std::int64_t epoch) {
  MeterReading total;
  meter_.restart();
  Stopwatch waiting;
  auto batch = loader.begin();
  for (std::int64_t number = 0;; ++number, waiting.restart(), ++batch) {
    meter_.add_data_seconds(waiting.seconds());
    const StepPart part = step_part(batches_, number);
    meter_.add(replica_->backward(*batch, part), batch->target.size(0));
    if (!part.is_last) continue;
    make_step();
    const bool last = finished() || number + 1 == batches_.batches;
    if (last || step_ % options_.log_interval == 0) total += log_interval(epoch);
    if (last) return total;
  }
}

void Trainer::make_step() {
  replica_->update(scheduler_.lr(step_));
  if (ema_) ema_->update();
  ++step_;
  meter_.add_step();
  progress_.step();
}

std::optional<double> Trainer::loss_scale() const {
  if (options_.precision != Precision::k16Mixed) return std::nullopt;
  return replica_->loss_scale();
}

bool Trainer::finished() {
  if (step_ == options_.limits.steps) summary_.stopped_by = "max-steps";
  if (budget_->spent()) summary_.stopped_by = "max-time";
  return !summary_.stopped_by.empty();
}

MeterReading Trainer::log_interval(std::int64_t epoch) {
  const MeterReading reading = meter_.read(replica_->communication_seconds());
  progress_.measured(reading.loss(), reading.samples_per_second());
  tell_of_bad_images();
  tell_of_slow_loader(reading);
  if (recorder_) {
    recorder_->append(
        {.elapsed = since_start_.seconds(),
         .epoch = epoch,
         .step = step_,
         .split = "train",
         .loss = reading.loss(),
         .lr = scheduler_.lr(step_ - 1),
         .samples_per_s = reading.samples_per_second(),
         .step_ms = reading.milliseconds_a_step(reading.seconds),
         .data_ms = reading.milliseconds_a_step(reading.data_seconds),
         .comm_ms = reading.milliseconds_a_step(reading.comm_seconds),
         .loss_scale = loss_scale()});
  }
  // The sum is over all ranks, so all of them leave here together.
  if (!std::isfinite(reading.loss())) {
    throw DivergedError(concat(
        "train: the loss became ",
        std::isnan(reading.loss()) ? "NaN" : "infinite",
        " in epoch ",
        epoch,
        ", within the ",
        reading.steps,
        " steps up to step ",
        step_,
        "; try a smaller --lr than ",
        options_.optimizer.lr));
  }
  return reading;
}

void Trainer::fail(const std::exception& error) {
  summary_.stopped_by = "error";
  summary_.steps = step_;
  summary_.exit = static_cast<int>(exit_code_of(error));
  if (!recorder_) return;
  try {
    recorder_->finish(summary_);
  } catch (const std::exception&) {
    // The first error is the one to tell; this one is most likely the same full disk.
  }
}

Loader Trainer::train_loader(std::int64_t epoch) const {
  return {
      data_.train,
      sampler_.epoch(epoch - 1),
      batch_size(),
      {.dtype = replica_->image_type(),
       .seed = static_cast<std::uint64_t>(options_.seed),
       .epoch = epoch - 1,
       .workers = workers_}};
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

// Of this rank: the replicas of `dp` share one.
std::int64_t Trainer::batch_size() const {
  return options_.batch_size * (options_.parallel == Parallel::kDp ? layout_.replicas : 1);
}

// The sampler gives every rank equally many samples.
EpochBatches Trainer::epoch_batches() const {
  const std::int64_t samples = sampler_.share();
  const std::int64_t all = samples / batch_size() + (samples % batch_size() != 0 ? 1 : 0);
  return {
      .samples = samples,
      .batch_size = batch_size(),
      .batches = std::min(all, options_.limit_train_batches.value_or(all)),
      .batches_a_step = options_.grad_accum_steps};
}

LrScheduler Trainer::make_scheduler() const {
  const std::int64_t batches_a_step = options_.grad_accum_steps * layout_.replicas;
  const double lr = scaled_lr(options_.optimizer, batches_a_step);
  const LrSettings& settings = options_.optimizer.schedule;
  return {
      make_lr_schedule(settings, lr, options_.limits, steps_of(batches_)),
      plateau_rule(settings, larger_is_better(options_.eval_metric))};
}

void Trainer::announce_rest(std::int64_t epoch, std::int64_t steps) {
  progress_.begin_epoch(epoch, options_.limits.epochs, steps);
  const std::int64_t epochs_left = options_.limits.epochs.value_or(epoch) - epoch;
  progress_.set_later(epochs_left * steps, options_.val_interval > 0 ? epochs_left + 1 : 1);
}

bool Trainer::evaluation_due(std::int64_t epoch) const {
  if (!summary_.stopped_by.empty()) return true;
  return options_.val_interval > 0 && epoch % options_.val_interval == 0;
}

}  // namespace lockstep
