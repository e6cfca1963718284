#include "lockstep/train/trainer.h"

#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include <ATen/ops/full.h>

#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/train/state/whole_model.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep {
namespace {

// Of all ranks together; nothing if one of them does not know. Ranks that are threads have one
// process, and rank 0 counts it. A collective.
std::optional<std::int64_t> peak_memory_of_all(const ProcessGroup& world) {
  const bool counts = world.backend_name() != "threads" || world.rank() == 0;
  double own = 0;
  if (counts) {
    const auto bytes = peak_memory_bytes();
    own = bytes ? static_cast<double>(*bytes) : std::numeric_limits<double>::quiet_NaN();
  }
  const torch::Tensor sum = at::full({1}, own, on_host(torch::kDouble));
  world.all_reduce(sum).wait();
  const auto total = sum.item<double>();
  return std::isnan(total) ? std::nullopt
                           : std::optional<std::int64_t>(static_cast<std::int64_t>(total));
}

}  // namespace

Trainer::Trainer(TrainOptions options, const ProcessGroup& world,
    const std::vector<std::string>& command, const std::vector<Place>& places)
    : run_(std::move(options), world, command, places),
      checkpointer_(run_),
      loop_(run_, checkpointer_),
      validator_(run_, checkpointer_) {}

RunSummary Trainer::run() {
  try {
    train();
  } catch (const DivergedError& error) {
    end_diverged(error);
    throw;
  } catch (const CommError& error) {
    if (checkpointer_.ends_with_its_peers()) return finished();
    loop_.undo_step();
    checkpointer_.rescue();
    record_failure(error);
    throw;
  } catch (const std::exception& error) {
    record_failure(error);
    throw;
  }
  const RunSummary result = finished();
  if (result.exit != 0) run_.groups.world.barrier().wait();  // as above
  return result;
}

RunSummary Trainer::finished() {
  run_.log.progress().end();
  RunSummary result = summary();
  if (const RunRecorder* const recorder = run_.log.recorder()) recorder->finish(result);
  return result;
}

void Trainer::train() {
  const RankGroups& groups = run_.groups;
  groups.world.barrier().wait();
  let_stops_be_saved();
  run_.clock.begin_training();
  pass_epochs();
  // Measuring layers needs copies of them, which are no part of training.
  if (run_.profiler) measured_.peak_memory_bytes = peak_memory_of_all(groups.world);
  const auto is_interrupted = [&] { return checkpointer_.course() == Course::kInterrupted; };
  if (!is_interrupted()) finish_profile();
  if (!is_interrupted()) {
    const TestScores scores = validator_.test(run_.state.epochs.back());
    measured_.test = scores.last;
    measured_.best_test = scores.best;
  }
  if (!is_interrupted()) {
    check_loss(measured_.test.loss);
    validator_.save_last();
  }
  checkpointer_.finish();
  measured_.bad_images = run_.log.bad_images(groups.world);
  if (!run_.profiler) measured_.peak_memory_bytes = peak_memory_of_all(groups.world);
  measured_.recovery_seconds = run_.log.recovery_seconds();
  measured_.parameters_hash = run_.replica->parameters_hash();
  write_what_waits();
}

// A run that had ended before this start, after an epoch, was measured then.
void Trainer::pass_epochs() {
  const bool is_measured = run_.state.position.samples == 0 && !run_.state.epochs.empty();
  if (is_measured && checkpointer_.course() != Course::kGoesOn) return;
  do {
    pass_epoch();
  } while (checkpointer_.course() == Course::kGoesOn);
}

// A full disk costs the profile, not the run.
void Trainer::finish_profile() {
  if (!run_.profiler) return;
  // A net that cannot be copied, or has too little memory for it, costs these numbers, not the run.
  const auto files = run_.profiler->finish([&](const ChainInput& input) {
    try {
      return run_.replica->chain_costs(input);
    } catch (const std::exception& error) {
      run_.log.warn(concat("the profile has no costs of layers: ", error.what()));
      return std::vector<LayerCosts>();
    }
  });
  RunRecorder* const recorder = run_.log.recorder();
  if (recorder == nullptr) return;
  if (!files)
    return run_.log.warn(concat("no profile: it begins after ", run_.profiler->steps_before(),
        " steps, and this start made fewer"));
  measured_.profile = files->profile;
  try {
    recorder->write_profile(profile_json(files->profile), files->trace);
  } catch (const std::system_error& error) {
    run_.log.warn(concat("the profile is not in the run's folder: ", error.what()));
  }
}

void Trainer::pass_epoch() {
  EpochSummary epoch = loop_.pass();
  if (checkpointer_.course() == Course::kInterrupted) return;
  const bool is_cut = checkpointer_.course() != Course::kGoesOn;
  if (!is_cut && epoch.epoch == run_.options.limits.epochs) checkpointer_.end("epochs");
  const bool is_last = checkpointer_.course() != Course::kGoesOn;
  if (is_last) run_.check_weights();
  const bool is_best = validator_.is_due(is_last) && validator_.evaluate(epoch);
  if (checkpointer_.course() == Course::kInterrupted) return checkpointer_.save_step(true);
  run_.state.epochs.push_back(epoch);
  run_.log.progress().end_epoch(epoch);
  if (is_last) check_loss(epoch.val.loss);
  if (is_last) check_loss(epoch.ema.loss);
  checkpointer_.end_epoch(is_cut, is_best);
}

// What was measured last must be of use. In between, a loss may overflow and come back.
void Trainer::check_loss(const std::optional<double>& loss) const {
  if (loss && !std::isfinite(*loss)) run_.diverged("the loss of the last evaluation overflowed");
}

RunSummary Trainer::summary() const {
  const TrainOptions& options = run_.options;
  RunSummary result = measured_;
  result.model = options.model;
  result.data = options.data.name;
  result.parallel = name_of(options.parallel);
  result.world_size = run_.layout.replicas * run_.layout.workers;
  result.stages = run_.layout.stages;
  result.chunks = run_.layout.micro_batches;
  result.batch_size = options.batch_size;
  result.precision = name_of(options.precision);
  if (options.auto_precision) result.precision_asked = "auto";
  result.epochs = run_.state.epochs;
  result.eval_metric = options.eval_metric;
  result.best = run_.state.best;
  result.steps = run_.state.step;
  result.skipped_steps = run_.state.skipped_steps;
  result.stopped_by = checkpointer_.stopped_by();
  result.restarts = run_.state.restarts;
  result.exit = exit_status();
  if (run_.start.snapshot) {
    result.resumed_from = run_.start.snapshot->path().string();
    if (continues(options.output, options.resume)) result.snapshot = result.resumed_from;
  }
  if (const auto step = checkpointer_.last_saved())
    result.snapshot = concat(options.output, "/snapshots/", snapshot_name(*step));
  return result;
}

int Trainer::exit_status() const {
  if (checkpointer_.signal() == 0) return 0;
  return checkpointer_.is_saved() ? static_cast<int>(ExitCode::kStopped)
                                  : 128 + checkpointer_.signal();
}

// A run that was stopped is to go on, and most likely with a disk that has room again.
void Trainer::write_what_waits() {
  RunRecorder* const recorder = run_.log.recorder();
  if (recorder == nullptr) return;
  try {
    validator_.finish();
    recorder->flush();
    const std::string warning = recorder->take_warning();
    if (!warning.empty()) run_.log.warn(warning);
  } catch (const std::system_error& error) {
    if (checkpointer_.signal() == 0) throw;
    run_.log.warn(error.what());
  }
}

// All ranks are here: what is being saved becomes durable. The first to leave ends the run, so none
// may before rank 0 has written its files.
void Trainer::end_diverged(const DivergedError& error) {
  try {
    checkpointer_.finish();
  } catch (const std::system_error&) {
    // The first error is the one to report.
  } catch (const DivergedError&) {
    // So it is here: what was being saved had diverged before.
  }
  record_failure(error);
  run_.groups.world.barrier().wait();
}

void Trainer::record_failure(const std::exception& error) {
  run_.log.progress().end();
  const RunRecorder* const recorder = run_.log.recorder();
  if (recorder == nullptr) return;
  RunSummary result = summary();
  result.stopped_by = "error";
  result.exit = static_cast<int>(exit_code_of(error));
  try {
    recorder->finish(result);
  } catch (const std::exception&) {
    // The first error is the one to report; this one is most likely the same full disk.
  }
}

}  // namespace lockstep
