#include "lockstep/train/trainer.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/full.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/peak_memory.h"
#include "lockstep/formats/snapshot/snapshot_folder.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/record/environment_report.h"
#include "lockstep/train/state/parameters_hash.h"

namespace lockstep {
namespace {

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

DataIdentity identity_of(const TrainOptions& options, const Datasets& data) {
  return {
      .name = options.data.name,
      .samples = data.train->size(),
      .classes = data.train->classes(),
      .fingerprint = data.fingerprint};
}

// Ranks that are threads have one process, in which one of them reports.
std::optional<ProgressPage> page_of(const ProcessGroup& world) {
  if (world.backend_name() == "threads" && world.rank() != 0) return std::nullopt;
  return ProgressPage::from_environment();
}

// Of all ranks together; nothing if one of them cannot tell. Ranks that are threads have one
// process, and rank 0 counts it. A collective.
std::optional<std::int64_t> peak_memory_of_all(const ProcessGroup& world) {
  const bool counts = world.backend_name() != "threads" || world.rank() == 0;
  double own = 0;
  if (counts) {
    const auto bytes = peak_memory_bytes();
    own = bytes ? static_cast<double>(*bytes) : std::numeric_limits<double>::quiet_NaN();
  }
  const torch::Tensor sum = at::full({1}, own, torch::kDouble);
  world.all_reduce(sum).wait();
  const auto total = sum.item<double>();
  return std::isnan(total) ? std::nullopt
                           : std::optional<std::int64_t>(static_cast<std::int64_t>(total));
}

Layout cut_as_before(Layout layout, const RunState& state) {
  if (std::ssize(state.balance) == layout.stages && layout.stages > 1)
    layout.balance = state.balance;
  return layout;
}

// Of this thread: a rank that is pinned to one core has one.
int usable_cores() { return static_cast<int>(place::allowed_cores().size()); }

ProgressStyle style_of(const TrainOptions& options, int rank) {
  return rank == 0 ? options.progress : ProgressStyle::kNone;
}

}  // namespace

// Samples are dealt out among the replicas: the stages of one train on the same.
Trainer::Trainer(
    TrainOptions options, const ProcessGroup& world, const std::vector<std::string>& command,
    const std::vector<Place>& places)
    : options_(std::move(options)),
      layout_(checked_layout(options_, world)),
      groups_(make_rank_groups(world, layout_)),
      page_(page_of(world)),
      data_(load_datasets(options_)),
      workers_(workers_of(options_.loading, usable_cores(), data_.is_mere_copy)),
      bad_images_(data_.folders),
      start_(find_starting_point(options_, identity_of(options_, data_), world)),
      replica_(make_replica(
          options_, cut_as_before(layout_, start_.state), task_of(options_, data_), groups_,
          places)),
      sampler_(
          data_.train->size(), groups_.replicas,
          {.shuffle = true, .seed = static_cast<std::uint64_t>(options_.seed)}),
      scheduler_(make_scheduler()),
      meter_(groups_.replicas),
      progress_(style_of(options_, world.rank())),
      saver_(
          {.run = options_.output,
           .keep = options_.snapshots.keep,
           .required = options_.snapshots.required},
          world),
      agreement_(world),
      summary_(begun_summary(options_, layout_)) {
  if (options_.ema) ema_.emplace(replica_->state().values(), *options_.ema);
  if (world.rank() == 0) {
    recorder_.emplace(options_, command, environment_report(world));
    best_weights_.emplace(recorder_->file("best.safetensors"));
    summary_.restarts = recorder_->restarts();
    SnapshotFolder(options_.output).remove_leftovers();
    tell_of_start();
  }
  restore();
}

void Trainer::tell_of_start() {
  progress_.announce(
      concat(options_.model, ", ", name_of(options_.parallel), ": ", describe(options_, layout_)));
  for (const std::string& remark : start_.remarks) progress_.warn(remark);
  if (start_.snapshot) {
    progress_.announce(start_.announcement);
  } else if (!start_.announcement.empty()) {
    progress_.warn(start_.announcement);
  }
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
  if (summary_.exit != 0) groups_.world.barrier().wait();  // as above
  return summary_;
}

void Trainer::train() {
  groups_.world.barrier().wait();
  since_training_.restart();
  pass_epochs();
  if (signal_ == 0) {
    test();
    save_last();
  }
  end();
}

// What earlier lives have reached may end the run before it begins: then what is there is measured.
void Trainer::pass_epochs() {
  const TrainLimits& limits = options_.limits;
  if (limits.epochs && position_.epoch > *limits.epochs) summary_.stopped_by = "epochs";
  if (limits.steps && step_ >= *limits.steps) summary_.stopped_by = "max-steps";
  if (limits.seconds && seconds_ >= *limits.seconds) summary_.stopped_by = "time";
  const bool is_measured = position_.samples == 0 && !summary_.epochs.empty();
  if (!summary_.stopped_by.empty() && is_measured) return;
  do {
    EpochSummary result = train_epoch();
    if (signal_ != 0) return;
    const bool goes_on = summary_.stopped_by.empty();
    if (goes_on && position_.epoch == limits.epochs) summary_.stopped_by = "epochs";
    const bool is_better = evaluation_due() && evaluate_epoch(result);
    summary_.epochs.push_back(result);
    progress_.end_epoch(result);
    end_epoch(goes_on, is_better);
  } while (summary_.stopped_by.empty());
}

// An epoch in which steps or time ran out was saved as it was, so that a longer run goes on in it
// as if it had never ended.
void Trainer::end_epoch(bool goes_on, bool is_better) {
  if (goes_on) {
    position_ = {.epoch = position_.epoch + 1};
    epoch_total_ = {};
    if (is_better || !summary_.stopped_by.empty() || snapshot_due()) save_snapshot(is_better);
  } else if (is_better) {
    finish_snapshots();
    if (recorder_ && saver_.last_saved() == step_) SnapshotFolder(options_.output).set_best(step_);
  }
}

void Trainer::end() {
  finish_snapshots();
  if (const auto step = saver_.last_saved())
    summary_.snapshot = concat(options_.output, "/snapshots/", snapshot_name(*step));
  summary_.steps = step_;
  summary_.skipped_steps = replica_->skipped_steps();
  summary_.bad_images = bad_images_.count(groups_.world);
  summary_.peak_memory_bytes = peak_memory_of_all(groups_.world);
  if (page_) summary_.recovery_seconds = page_->recovery_seconds();
  summary_.parameters_hash =
      agreed_parameters_hash(replica_->parameters(), groups_.replicas, groups_.stages);
  if (signal_ != 0) {
    const bool is_saved = saver_.last_saved() == step_;
    summary_.exit = is_saved ? static_cast<int>(ExitCode::kStopped) : 128 + signal_;
  }
  write_what_waits();
}

// A run that was stopped is to go on, and most likely with a disk that has room again.
void Trainer::write_what_waits() {
  if (!recorder_) return;
  try {
    best_weights_->finish();
    recorder_->flush();
  } catch (const std::system_error& error) {
    if (signal_ == 0) throw;
    progress_.warn(error.what());
  }
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

// Of this rank: the replicas of `dp` share one.
std::int64_t Trainer::batch_size() const {
  return options_.batch_size * (options_.parallel == Parallel::kDp ? layout_.replicas : 1);
}

}  // namespace lockstep
