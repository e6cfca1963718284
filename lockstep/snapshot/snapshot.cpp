#include "lockstep/snapshot/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/restore_tensors.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"
#include "lockstep/snapshot/snapshot_saver.h"
#include "lockstep/snapshot/state_fields.h"
#include "lockstep/snapshot/tensor_shards.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* kKind = "library";  // as opposed to those of `lockstep train`

/// The content of state.json.
struct State {
  SnapshotPosition position = {};
  std::int64_t samples = 0;
  int world_size = 1;
  std::optional<nn::GradScalerState> scaler = {};
  std::optional<std::int64_t> ema_updates = {};
  std::map<std::string, std::string> values = {};
};

template <typename Object>
void list_fields(Object& object, State& state) {
  object("epoch", state.position.epoch);
  object("step", state.position.step);
  object("samples", state.samples);
  object("world_size", state.world_size);
  object("scaler", state.scaler);
  object("ema_updates", state.ema_updates);
  object.texts("values", state.values);
}

std::string state_text(const SnapshotMoment& moment, std::int64_t step, int ranks) {
  const State state{.position = {moment.epoch, step},
      .samples = moment.samples,
      .world_size = ranks,
      .scaler = moment.scaler ? moment.scaler->state() : std::nullopt,
      .ema_updates = moment.ema ? std::optional(moment.ema->updates()) : std::nullopt,
      .values = moment.values};
  json object(JsonWriter::json_of(state));
  object.update({{"v", 1}, {"kind", kKind}});
  try {
    return object.dump(2) + "\n";
  } catch (const json::type_error&) {
    throw InvalidArgument("Snapshot::save: a value is not UTF-8");
  }
}

State read_state(const SnapshotReader& reader) {
  const std::string file = (reader.path() / kStateFile).string();
  const json object = parse_strict_json(reader.state(), file, kStateLimits);
  const JsonFields fields(object, file);
  if (fields.text_if("kind") != kKind)
    throw DataError(
        file +
        ": another program saved this, such as `lockstep train`, which continues it with "
        "--resume; choose another folder for this run");
  return JsonReader::read<State>(fields);
}

void restore_scaler(const std::optional<nn::GradScalerState>& saved, nn::GradScaler* scaler,
    const std::string& path) {
  const bool is_wanted = scaler != nullptr && scaler->is_enabled();
  if (saved.has_value() != is_wanted) {
    throw DataError(
        concat(path, saved ? ": was saved with a GradScaler: pass it to load()"
                           : ": was saved without a GradScaler: do not pass one to load()"));
  }
  if (saved) scaler->load(saved);
}

void restore_ema(const SnapshotReader& reader, const std::optional<std::int64_t>& updates,
    ModelEma* ema, const nn::NamedTensors& named, const WantedTensors& wanted) {
  const std::string path = reader.path().string();
  if (updates.has_value() != (ema != nullptr)) {
    throw DataError(
        concat(path, updates ? ": was saved with averages: pass the ModelEma to load()"
                             : ": was saved without averages: do not pass a ModelEma to load()"));
  }
  if (ema == nullptr) return;
  restore_tensors(named_averages(*ema, named), reader.model_ema(wanted), path + ": model-ema");
  ema->restore(ema->averages(), *updates);
}

std::vector<torch::Device> devices_of(const nn::NamedTensors& state) {
  std::set<std::string> names;
  std::vector<torch::Device> devices;
  for (const auto& item : state) {
    const torch::Device device = item.value().device();
    if (names.insert(device.str()).second) devices.push_back(device);
  }
  return devices;
}

void say(const ProcessGroup& world, const std::string& text) {
  if (world.rank() == 0) std::cerr << text << std::endl;
}

/// Returns nothing where this program may not write, and so can take nothing from another.
std::unique_ptr<const RunLock> lock_of(const std::filesystem::path& run) {
  const bool is_restart = environment_count("TORCHELASTIC_RESTART_COUNT").value_or(0) > 0;
  const auto patience = is_restart ? kLockPatience : std::chrono::seconds(0);
  try {
    return std::make_unique<const RunLock>(run.string(), kRunLock, patience);
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    if (number != EACCES && number != EPERM && number != EROFS) throw;
    return nullptr;
  }
}

void remove_leftovers(const std::filesystem::path& run) {
  try {
    SnapshotFolder(run).remove_leftovers();
  } catch (const std::exception& error) {
    std::cerr << "warning: what an earlier run left unfinished stays: " << error.what()
              << std::endl;
  }
}

bool is_sharded(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const ShardedOptimizer*>(&optimizer) != nullptr;
}

// Ranks that share a model name their files as stages do; of those that hold the same, as ranks of
// several copies do, the first writes.
SnapshotRole role_in(const ProcessGroup& world, const TensorRanges& ranges) {
  SnapshotRole role{.rank = world.rank(), .replica = world.rank(), .ranks = world.size()};
  if (ranges.empty()) return role;
  const std::vector<std::string> all = all_texts(to_json(ranges), world);
  std::vector<std::string> distinct;
  for (const std::string& held : all)
    if (std::ranges::find(distinct, held) == distinct.end()) distinct.push_back(held);
  const auto own = all.begin() + world.rank();
  role.replica = static_cast<int>(std::count(all.begin(), own, *own));
  role.stage = static_cast<int>(std::ranges::find(distinct, *own) - distinct.begin());
  role.stages = static_cast<int>(distinct.size());
  return role;
}

// What a rank of that role gives, without the state.
SnapshotPart part_of(const nn::NamedTensors& named, const TensorRanges& ranges,
    const torch::optim::Optimizer& optimizer, const SnapshotMoment& moment,
    const SnapshotRole& role) {
  const auto own = [&](SnapshotContent content) {
    return shard_of(std::move(content), ranges, role.stage == 0);
  };
  const SnapshotFileNames names = snapshot_file_names(role);
  SnapshotPart part;
  if (!names.model.empty()) part.files[names.model] = own({.tensors = named});
  if (moment.ema && !names.model_ema.empty())
    part.files[names.model_ema] = own({.tensors = named_averages(*moment.ema, named)});
  // On all ranks: what cannot be saved is an error on all, or the others would wait for this one.
  SnapshotContent of_optimizer = content_of(optimizer_state(optimizer, named));
  if (!names.optimizer.empty()) part.files[names.optimizer] = own(std::move(of_optimizer));
  part.files[names.rank] = {.tensors = random_state(devices_of(named))};
  part.best = moment.best;
  return part;
}

}  // namespace

Snapshot::Snapshot(std::filesystem::path run, ProcessGroup world, SnapshotOptions options)
    : run_(std::move(run)),
      world_(std::move(world)),
      options_(options),
      saver_({.run = run_, .keep = options.keep, .required = options.required}, world_) {}

SnapshotPosition Snapshot::load(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
    nn::GradScaler* scaler, ModelEma* ema) {
  return load(nn::named_state(module), {}, optimizer, scaler, ema);
}

SnapshotPosition Snapshot::load(const nn::NamedTensors& named, const TensorRanges& ranges,
    torch::optim::Optimizer& optimizer, nn::GradScaler* scaler, ModelEma* ema) {
  saver_.finish();
  take_folder();
  if (options_.rescue && world_.size() > 1 && ranges.empty()) report_rescue(RescueState::kPossible);
  const SnapshotChoice choice = newest_snapshot(run_, world_);
  for (const auto& [name, reason] : choice.refused)
    say(world_, concat("warning: ", run_.string(), ": ", name, " cannot be used: ", reason));
  if (choice.path.empty()) {
    say(world_, run_.string() + ": there is no snapshot, the run begins");
    last_step_ = 0;
    return {};
  }
  const SnapshotReader reader(choice);
  const State state = read_state(reader);
  const WantedTensors wanted{.ranges = ranges};
  const auto restore = [&] {
    restore_tensors(named, reader.model(wanted), choice.path.string());
    restore_optimizer(optimizer, named, reader.optimizer(wanted));
    restore_scaler(state.scaler, scaler, choice.path.string());
    restore_ema(reader, state.ema_updates, ema, named, wanted);
    if (const auto own = reader.rank(world_.rank()); !own.is_empty())
      restore_random_state(own, devices_of(named));
  };
  work_patiently([&] { reader.checked(restore); }, world_);
  samples_ = state.samples;
  values_ = state.values;
  last_step_ = state.position.step;
  say(world_, concat(choice.path.string(), ": goes on with epoch ", state.position.epoch, ", step ",
                  state.position.step));
  return state.position;
}

// What is unfinished may be the work of another process, until the folder is this one's.
void Snapshot::take_folder() {
  const auto take = [this] {
    if (lock_ == nullptr) lock_ = lock_of(run_);
    if (lock_ != nullptr) remove_leftovers(run_);
  };
  do_on_root(take, world_);
}

std::int64_t Snapshot::step_of(const SnapshotMoment& moment) const {
  check(last_step_.has_value(),
      "Snapshot::save: call load() first, or this run could be mixed up with an earlier one in ",
      run_.string());
  const std::int64_t step = moment.step.value_or(*last_step_ + 1);
  check(step >= *last_step_, "Snapshot::save: steps cannot fall, the highest is the newest: ", step,
      " after ", *last_step_);
  check(moment.samples >= 0, "Snapshot::save: samples must not be negative: ", moment.samples);
  return step;
}

void Snapshot::save(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
    const SnapshotMoment& moment) {
  save(nn::named_state(module), {}, optimizer, moment);
}

void Snapshot::save(const nn::NamedTensors& state, const TensorRanges& ranges,
    const torch::optim::Optimizer& optimizer, const SnapshotMoment& moment) {
  const std::int64_t step = step_of(moment);
  SnapshotRole role = role_in(world_, ranges);
  role.sharded_optimizer = is_sharded(optimizer);
  SnapshotPart part = part_of(state, ranges, optimizer, moment, role);
  std::string text = state_text(moment, step, world_.size());  // on all ranks, likewise
  if (world_.rank() == 0) part.state = std::move(text);
  saver_.save(step, part);
  last_step_ = step;
  say_warnings();
}

bool Snapshot::save_alone(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
    const SnapshotMoment& moment) {
  check(!is_sharded(optimizer),
      "Snapshot::save_alone: the other ranks have their shares of the optimizer's state");
  const std::int64_t step = step_of(moment);
  report_rescue(RescueState::kUnderWay);
  try {
    SnapshotPart part = part_of(nn::named_state(module), {}, optimizer, moment, {});
    part.state = state_text(moment, step, 1);
    const bool is_saved = lockstep::save_alone(run_, options_.keep, step, part);
    report_rescue(is_saved ? RescueState::kDone : RescueState::kNone);
    return is_saved;
  } catch (...) {
    report_rescue(RescueState::kNone);  // else the launcher would wait for it
    throw;
  }
}

void Snapshot::wait() {
  saver_.finish();
  say_warnings();
}

void Snapshot::say_warnings() {
  for (const std::string& warning : saver_.take_warnings()) say(world_, "warning: " + warning);
}

}  // namespace lockstep
