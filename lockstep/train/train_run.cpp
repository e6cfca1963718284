#include "lockstep/train/train_run.h"

#include <algorithm>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/train/state/same_on_ranks.h"
#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {
namespace {

Layout checked_layout(const TrainOptions& options, const ProcessGroup& world) {
  const Layout layout = plan_layout_in(options, world.size(), world.backend_name() == "threads");
  check_options(options, layout.thread_ranks > 1 ? 1 : world.size());
  return layout;
}

DataIdentity identity_of(const TrainOptions& options, const Datasets& data) {
  return {.name = options.data.name,
      .samples = data.train->size(),
      .classes = data.train->classes(),
      .fingerprint = data.fingerprint};
}

const TrainOptions& with_meaning_alone(TrainOptions& options, const Datasets& data) {
  forget_usual_words(options, data.train->targets());
  // Of the data: whoever goes on with the weights may have other data, or none.
  if (options.data.name == "tokens" && !options.classes && data.train->classes() > 0)
    options.classes = data.train->classes();
  return options;
}

// The rank 0 that died may seem to have it yet.
std::unique_ptr<const RunLock> locked(const TrainOptions& options) {
  const auto patience = options.resume.again ? kLockPatience : std::chrono::seconds(0);
  return std::make_unique<const RunLock>(options.output, kRunLock, patience);
}

// Once flags and data are known to be good, and before anything of the folder is read or written. A
// collective.
std::unique_ptr<const RunLock> lock_folder(
    const TrainOptions& options, const DataIdentity& data, const ProcessGroup& world) {
  // Hosts may have other files under the same name.
  check_same_on_ranks(
      {{"training samples", concat(data.samples)}, {"classes", concat(data.classes)},
          {"fingerprint of the samples", data.fingerprint}},
      "train: the ranks read different data; give all hosts the same files:", world);
  std::unique_ptr<const RunLock> lock;
  do_on_root([&] { lock = locked(options); }, world);
  return lock;
}

// Of the folders that no other host sees. A collective.
std::unique_ptr<const RunLock> lock_own_folder(
    const TrainOptions& options, const SnapshotHosts& hosts) {
  std::unique_ptr<const RunLock> lock;
  if (!hosts.are_apart()) return lock;
  const auto take = [&] {
    if (hosts.leads() && hosts.group().rank() != 0) lock = locked(options);
  };
  const std::string failures = failures_of(take, hosts.world());
  check(failures.empty(), failures, "; hosts that share a folder need no --snapshot-copies");
  return lock;
}

Layout cut_as_before(Layout layout, const RunSetup& before) {
  if (std::ssize(before.balance) == layout.stages && layout.stages > 1)
    layout.balance = before.balance;
  return layout;
}

std::int64_t batches_a_step(const TrainRun& run) {
  return run.options.grad_accum_steps * run.layout.replicas;
}

LrScheduler make_scheduler(const TrainRun& run) {
  const TrainOptions& options = run.options;
  const double lr = scaled_lr(options.optimizer, batches_a_step(run));
  const LrSettings& settings = options.optimizer.schedule;
  const std::int64_t steps = steps_of(batches_left(run.epoch_rule(), {}));
  return {make_lr_schedule(settings, lr, options.limits, steps),
      plateau_rule(settings, is_larger_better(options.eval_metric))};
}

// What a plateau has left of the rate is of as many replicas as there were.
double rescaled_lr(double lr, const TrainRun& run) {
  const std::int64_t before = run.start.state.setup.batches_a_step, now = batches_a_step(run);
  if (before == 0 || before == now) return lr;
  OptimizerSettings unit = run.options.optimizer;
  unit.lr = 1;
  const double least = std::min(lr, unit.schedule.min_lr.value_or(0));
  return std::max(lr * scaled_lr(unit, now) / scaled_lr(unit, before), least);
}

// Empty if it is as before, or nobody knows.
std::string change_of_batch(const TrainRun& run) {
  const std::int64_t before = run.start.state.setup.batches_a_step, now = batches_a_step(run);
  if (before == 0 || before == now) return "";
  const OptimizerSettings& optimizer = run.options.optimizer;
  return concat("the global batch is ", now * run.options.batch_size, " samples now, and was ",
      before * run.options.batch_size, "; the learning rate ",
      optimizer.lr_scale == LrScale::kNone
          ? std::string("stays")
          : concat("follows it (--lr-scale ", name_of(optimizer.lr_scale), ")"));
}

RunSetup setup_of(const TrainRun& run) {
  return {.run = run.start.state.setup.run,
      .seed = run.options.seed,
      .world_size = run.groups.world.size(),
      .replicas = run.groups.replicas.size(),
      .stages = run.layout.stages,
      .balance = run.replica->balance(),
      .batches_a_step = batches_a_step(run),
      .configuration = run_configuration(run.options),
      .data = identity_of(run.options, run.data)};
}

MeterReading meter_of_rank(const nn::NamedTensors& rank) {
  const torch::Tensor* const meter = rank.find("meter");
  return unpacked(meter == nullptr ? at::empty({0}) : *meter);
}

torch::ScalarType type_of(Precision precision) {
  if (precision == Precision::k32) return torch::kFloat;
  return precision == Precision::kBf16Mixed ? torch::kBFloat16 : torch::kHalf;
}

// The thread that makes the run computes on the first.
std::vector<torch::Device> devices_in_use(const std::vector<Place>& places) {
  if (!places.empty()) use_device(places.front().device);
  return devices_of(places);
}

}  // namespace

// Samples are dealt out among the replicas: the stages of one train on the same.
TrainRun::TrainRun(TrainOptions given, const ProcessGroup& world,
    const std::vector<std::string>& command, const std::vector<Place>& places)
    : options(std::move(given)),
      devices(devices_in_use(places)),
      layout(checked_layout(options, world)),
      groups(make_rank_groups(world, layout)),
      kernels(options.kernels),
      data(load_datasets(options, world)),
      workers(workers_of(options.loading, usable_cpu_count(), data.is_mere_copy)),
      lock(lock_folder(with_meaning_alone(options, data), identity_of(options, data), world)),
      hosts(world, options.snapshots.copies),
      host_lock(lock_own_folder(options, hosts)),
      start(find_starting_point(options, identity_of(options, data), world, hosts)),
      replica(make_replica(options, cut_as_before(layout, start.state.setup),
          sample_form(*data.train, model_outputs(options, data)), groups, places,
          to_rehearse(options, layout, epoch_rule(), start.state.position))),
      resident(replica->device()),
      scheduler(make_scheduler(*this)),
      meter(groups.replicas),
      clock(start.state.seconds),
      log(options, world, command, data, start.replaces, start.state.step),
      state(start.state) {
  state.setup = setup_of(*this);
  const std::vector<MetricRecord> lines = std::exchange(state.last_lines, {});
  if (options.ema) ema.emplace(replica->state().values(), *options.ema);
  if (options.profile)
    profiler = std::make_unique<StepProfiler>(
        replica->state(), groups.world, places, type_of(options.precision));
  if (log.recorder() != nullptr) {
    if (continues(options.output, options.resume)) log.recorder()->append_missing(lines);
    state.restarts = log.recorder()->restarts();
    announce_start();
  }
  if (start.snapshot) {
    work_patiently(
        [&] { start.snapshot->checked([&] { restore(*start.snapshot); }); }, groups.world);
  } else {
    state.plateau = scheduler.start();
  }
}

EpochRule TrainRun::epoch_rule() const {
  return lockstep::epoch_rule(options, layout, data.train->size());
}

bool TrainRun::has_finite_weights() const {
  for (const auto& item : replica->state())
    if (!nn::is_finite(item.value())) return false;
  return true;
}

void TrainRun::check_weights() const {
  double overflows = has_finite_weights() ? 0 : 1;
  maximize({&overflows}, groups.world);
  if (overflows > 0) diverged("weights became infinite or NaN");
}

std::string TrainRun::divergence(const std::string& what) const {
  return concat("train: ", what, " in epoch ", state.position.epoch, ", up to step ", state.step,
      "; try a smaller --lr than ", options.optimizer.lr,
      ", or look for NaN in the data by lockstep data check");
}

void TrainRun::diverged(const std::string& what) const { throw DivergedError(divergence(what)); }

void TrainRun::announce_start() {
  Progress& progress = log.progress();
  progress.announce(concat(options.model, ", ", name_of(options.parallel), ": ",
      describe(options, layout), ", precision ", precision_text(options)));
  if (!data.remark.empty()) progress.warn(data.remark);
  for (const std::string& remark : start.remarks) progress.warn(remark);
  if (start.snapshot) {
    progress.say(start.announcement);
  } else if (!start.announcement.empty()) {
    progress.announce(start.announcement);
  }
  const std::string change = change_of_batch(*this);
  if (!change.empty()) progress.warn(change);
  const StartWeights& weights = replica->start();
  if (!weights.remark.empty()) progress.announce(weights.remark);
  if (!weights.warning.empty()) progress.warn(weights.warning);
}

// The state is there already; the tensors follow. What other stages hold is not even read.
void TrainRun::restore(const SnapshotReader& snapshot) {
  const nn::NamedTensors own = replica->state();
  const Others others = groups.stages.size() > 1 ? Others::kSkipped : Others::kRefused;
  const std::string path = snapshot.path().string();
  WantedTensors wanted{.ranges = replica->ranges()};
  if (const auto names = own.keys(); others == Others::kSkipped)
    wanted.names = std::set<std::string>(names.begin(), names.end());
  restore_tensors(own, snapshot.model(wanted), path + ": model", others);
  restore_optimizer(replica->optimizer(), own, snapshot.optimizer(wanted), others);
  replica->restore_scaler(state.scaler);
  state.plateau.lr = rescaled_lr(state.plateau.lr, *this);
  if (ema) {
    restore_tensors(
        named_averages(*ema, own), snapshot.model_ema(wanted), path + ": model-ema", others);
    ema->restore(ema->averages(), state.ema_updates);
  }
  restore_rank(snapshot);
}

// Ranks that are spread in another way share out anew what had been added up of an interval.
void TrainRun::restore_rank(const SnapshotReader& snapshot) {
  const RunSetup& before = start.state.setup;
  const int rank = groups.world.rank();
  if (snapshot.ranks() == groups.world.size() && state.setup.is_spread_as(before)) {
    const nn::NamedTensors own = snapshot.rank(rank);
    restore_random_state(own, devices);
    return meter.restore(meter_of_rank(own));
  }
  MeterReading all;
  for (int other = 0; other < snapshot.ranks(); ++other) all += meter_of_rank(snapshot.rank(other));
  const int ranks_a_replica = std::max(1, before.world_size / before.replicas);
  const int ranks = std::max(1, snapshot.ranks());
  meter.restore(share_of({.steps = all.steps / ranks,
                             .samples = all.samples / ranks_a_replica,
                             .loss_sum = all.loss_sum / ranks_a_replica,
                             .seconds = all.seconds / ranks},
      groups.replicas.rank(), groups.replicas.size()));
}

}  // namespace lockstep
