#include "lockstep/train/checkpointer.h"

#include <cmath>
#include <exception>
#include <iostream>
#include <unordered_set>
#include <utility>

#include "lockstep/liveness/own_slot.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/tensor_shards.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep {
namespace {

// To notice that the others are gone, and to be noticed.
constexpr double kNoticeSeconds = 0.5;
// A slow disk's, hashing and reading back included.
constexpr double kBytesPerSecond = 150e6;
// With what an optimizer like Adam keeps.
constexpr double kCopiesOfModel = 3;

// A step of several turns cannot be taken back.
bool holds_all(const TrainRun& run) {
  const ProcessGroup& world = run.groups.world;
  return run.replica->turns() == 1 && world.size() > 1 && world.backend_name() != "threads" &&
         run.groups.replicas.size() == world.size() && !run.options.optimizer.sharded &&
         run.replica->ranges().empty() && run.options.snapshots.rescue &&
         run.options.snapshots.unit != SnapshotUnit::kNever;
}

double seconds_to_save(const nn::NamedTensors& state) {
  double bytes = 0;
  for (const auto& item : state) bytes += static_cast<double>(item.value().nbytes());
  return kCopiesOfModel * bytes / kBytesPerSecond;
}

// Between two steps, forward changes buffers alone: what they are now is kept on their device.
nn::NamedTensors what_stays(const TrainRun& run, const nn::NamedTensors& state) {
  std::unordered_set<const void*> parameters;
  for (const torch::Tensor& parameter : run.replica->parameters())
    parameters.insert(parameter.unsafeGetTensorImpl());
  nn::NamedTensors kept("Tensor");
  for (const auto& item : state) {
    const torch::Tensor& tensor = item.value();
    const bool stays = tensor.is_cpu() || parameters.contains(tensor.unsafeGetTensorImpl());
    kept.insert(item.key(), stays ? tensor : tensor.clone());
  }
  return kept;
}

// With float16 the scaler knows whether a loss will recover.
void look_later(
    SnapshotPart& part, const TrainRun& run, const nn::NamedTensors& state, torch::Tensor meter) {
  part.overflows = nn::overflows_of(state.values());
  if (run.options.precision != Precision::k16Mixed)
    part.overflows.push_back(nn::overflows_of({std::move(meter)}).front());
  part.divergence = run.divergence("the loss or weights became infinite or NaN");
}

// What clocks and tensors know better.
void bring_up_to_date(TrainRun& run) {
  RunState& state = run.state;
  state.seconds = run.clock.read();
  if (state.position.samples == 0) state.seconds.epoch = 0;
  state.scaler = run.replica->scaler();
  state.skipped_steps += run.replica->take_skipped_steps();
  if (run.ema) state.ema_updates = run.ema->updates();
}

// Ranks that share the model of all replicas name their files as stages do.
SnapshotRole role_in(const TrainRun& run) {
  const RankGroups& groups = run.groups;
  const ProcessGroup& holders = run.replica->holders();
  if (!run.replica->ranges().empty())
    return {.rank = groups.world.rank(),
        .replica = groups.replicas.rank() / holders.size(),
        .stage = holders.rank(),
        .stages = holders.size(),
        .ranks = groups.world.size()};
  return {.rank = groups.world.rank(),
      .replica = groups.replicas.rank(),
      .stage = holders.rank(),
      .stages = holders.size(),
      .ranks = groups.world.size(),
      .sharded_optimizer = run.options.optimizer.sharded};
}

// Returns what a rank of this role gives to a snapshot of a run, as it is after a step. Brings the
// run's state up to date with its clocks and tensors. If it `looks_later`, nothing waits for a
// device: the part has the scalars that will say whether the run has diverged.
SnapshotPart run_part(TrainRun& run, const SnapshotRole& role, bool looks_later) {
  const SnapshotFileNames names = snapshot_file_names(role);
  const nn::NamedTensors state = run.replica->state();
  const auto share = [&](SnapshotContent content) {
    return shard_of(std::move(content), run.replica->ranges(), role.stage == 0);
  };
  SnapshotPart part;
  if (!names.model.empty()) part.files[names.model] = share({.tensors = what_stays(run, state)});
  if (run.ema && !names.model_ema.empty())
    part.files[names.model_ema] = share({.tensors = named_averages(*run.ema, state)});
  // On all ranks: what cannot be saved is an error on all, or the others would wait for this one.
  SnapshotContent of_optimizer = content_of(optimizer_state(run.replica->optimizer(), state));
  if (!names.optimizer.empty()) part.files[names.optimizer] = share(std::move(of_optimizer));
  nn::NamedTensors own = random_state(run.devices);
  own.insert("meter", looks_later ? run.meter.packed_part() : packed(run.meter.part()));
  part.files[names.rank].tensors = own;
  if (looks_later) look_later(part, run, state, own["meter"]);
  bring_up_to_date(run);
  if (role.rank == 0) part.state = to_json(run.state);
  return part;
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
  const bool is_lost = !run_.replica->may_recover() && !std::isfinite(run_.meter.part().loss_sum);
  return !is_lost && run_.has_finite_weights();
}

// As the only rank of a world would, so that no part is missing.
bool Rescue::save_whole() {
  run_.state.last_lines = run_.log.last_records();
  SnapshotPart part = run_part(run_, {}, /*looks_later=*/false);
  MeterReading as_of_all = run_.meter.part();  // the others' sums are gone with them
  as_of_all.samples *= run_.groups.world.size();
  as_of_all.loss_sum *= run_.groups.world.size();
  part.files[snapshot_rank_file_name(0)].tensors["meter"] = packed(as_of_all);
  const std::int64_t step = run_.state.step;
  part.best = run_.state.best_snapshot == snapshot_name(step);
  return save_alone(run_.options.output, run_.options.snapshots.keep, step, part);
}

namespace {

// On accelerators the host would wait: there the saver's thread finds what has overflowed. All
// ranks do the same, whatever they compute on: looking is a collective.
bool must_look_first(const TrainRun& run) {
  double must = run.devices.empty() ? 1 : 0;
  for (const torch::Device& device : run.devices)
    if (device.is_cpu()) must = 1;
  maximize({&must}, run.groups.world);
  return must > 0;
}

}  // namespace

Checkpointer::Checkpointer(TrainRun& run)
    : run_(run),
      saver_({.run = run.options.output,
                 .keep = run.options.snapshots.keep,
                 .required = run.options.snapshots.required,
                 .hosts = run.hosts},
          run.groups.world),
      agreement_(run.groups.world),
      looks_first_(must_look_first(run)),
      seconds_(run.state.seconds.training),
      last_snapshot_(progress()),
      durable_(last_snapshot_),
      rescue_(run) {
  const TrainLimits& limits = run.options.limits;
  if (limits.epochs && run.state.position.epoch > *limits.epochs) end("epochs");
  if (limits.steps && run.state.step >= *limits.steps) end("max-steps");
  if (limits.seconds && seconds_ >= *limits.seconds) end("time");
}

Course Checkpointer::course() const {
  if (signal_ != 0) return Course::kInterrupted;
  return stopped_by_.empty() ? Course::kGoesOn : Course::kEnds;
}

Course Checkpointer::after_part() {
  if (agreement_.is_due()) agree(agreement_);
  return course();
}

Course Checkpointer::after_step(bool epoch_is_over) {
  if (run_.state.step == run_.options.limits.steps) end("max-steps");
  const std::optional<double>& limit = run_.options.limits.seconds;
  const bool is_due = agreement_.is_due();
  if (epoch_is_over || is_due) {
    agree(agreement_);
    if (stopped_by_.empty() && limit && seconds_ >= *limit) end("time");
  }
  return course();
}

// A signal counts more than a limit: the next start finds that the limit is reached.
void Checkpointer::agree(Agreement& agreement) {
  const StepReport agreed = agreement.maximum({.seconds = run_.clock.read().training,
                                                  .signal = static_cast<double>(stop_signal()),
                                                  .snapshot = saver_.report()},
      run_.options.limits.seconds);
  seconds_ = agreed.seconds;
  if (saver_.in_flight()) saver_.advance(agreed.snapshot);
  consider_rescue();
  report_warnings();
  if (agreed.signal != 0) interrupt(static_cast<int>(agreed.signal));
}

void Checkpointer::interrupt(int signal) {
  signal_ = signal;
  end("signal");
}

std::function<bool()> Checkpointer::interruption(std::int64_t batches) {
  return [this, batches, agreement = Agreement(run_.groups.world)]() mutable {
    if (--batches <= 0) return false;  // the end is near, and some ranks are there
    if (agreement.is_due()) agree(agreement);
    return course() == Course::kInterrupted;
  };
}

bool Checkpointer::is_saved() const {
  const std::int64_t step = run_.state.step;
  return step == run_.start.state.step || last_saved() == step;
}

bool Checkpointer::ends_with_its_peers() {
  if (stop_signal() == 0 || run_.state.step != run_.start.state.step) return false;
  interrupt(stop_signal());
  return true;
}

TrainingProgress Checkpointer::progress() const {
  return {.steps = run_.state.step, .epochs = run_.state.position.epoch - 1, .seconds = seconds_};
}

void Checkpointer::save_step(bool is_last) {
  if (is_last ? last_snapshot_.steps != run_.state.step : is_due()) save(false);
}

void Checkpointer::end_epoch(bool is_cut, bool is_best) {
  RunState& state = run_.state;
  if (!is_cut) {
    state.position = {.epoch = state.position.epoch + 1};
    state.epoch_total = {};
    if (is_best || !stopped_by_.empty() || is_due()) save(is_best);
  } else if (is_best) {
    finish();
    if (saver_.commits() && last_saved() == state.step)
      SnapshotFolder(run_.options.output).set_best(state.step);
  }
}

// One that time alone asks for can wait until the disk has the one before.
bool Checkpointer::is_due() const {
  const SnapshotSettings& settings = run_.options.snapshots;
  if (settings.unit == SnapshotUnit::kOverhead && saver_.in_flight()) return false;
  return is_snapshot_due(
      {settings.unit, settings.count}, last_snapshot_, progress(), saver_.cost());
}

void Checkpointer::save(bool best) {
  if (run_.options.snapshots.unit == SnapshotUnit::kNever) return;
  if (best) run_.state.best_snapshot = snapshot_name(run_.state.step);
  last_snapshot_ = progress();
  // The next log line ends the run.
  if ((looks_first_ || loss_may_recover()) && !is_loss_finite()) return;
  if (looks_first_) run_.check_weights();
  SnapshotPart part = run_part(run_, role_in(run_), !looks_first_);
  part.stays = stopped_by_.empty();  // at the end, averages are exchanged
  part.best = best;
  saver_.save(run_.state.step, part);
  report_warnings();
}

bool Checkpointer::is_loss_finite() const {
  const bool is_finite = std::isfinite(run_.meter.part().loss_sum);
  double overflows = is_finite || run_.replica->may_recover() ? 0 : 1;
  maximize({&overflows}, run_.groups.world);
  return overflows == 0;
}

void Checkpointer::rescue() {
  consider_rescue();
  rescue_.save();
}

// A snapshot in flight is lost with the rank that died.
void Checkpointer::consider_rescue() {
  if (saver_.last_saved() == last_snapshot_.steps) durable_ = last_snapshot_;
  rescue_.consider({.steps = run_.state.step - durable_.steps,
                       .seconds = run_.clock.read().training - durable_.seconds},
      saver_.cost());
}

void Checkpointer::finish() {
  saver_.finish();
  report_warnings();
}

void Checkpointer::report_warnings() {
  for (const std::string& warning : saver_.take_warnings())
    if (run_.log.recorder() != nullptr) run_.log.warn(warning);
}

}  // namespace lockstep
