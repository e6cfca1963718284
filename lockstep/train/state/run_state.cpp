#include "lockstep/train/state/run_state.h"

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/snapshot/state_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json epoch_json(const EpochSummary& epoch) {
  Json entry = json_of(epoch);
  entry["validated"] = epoch.validated;
  return entry;
}

EpochSummary read_epoch(const JsonFields& fields) {
  EpochSummary epoch{.val = read_scores(fields, "val_"),
      .ema = read_scores(fields, "ema_"),
      .validated = fields.flag("validated"),
      .tokens_per_s = fields.number_if("tokens_per_s"),
      .val_seconds = fields.number_if("val_seconds"),  // only after an evaluation
      .val_samples = fields.count_if("val_samples").value_or(0)};
  JsonReader io(fields);
  io.count("epoch", epoch.epoch);
  io("train_seconds", epoch.train_seconds);
  io.number_or_nan("train_loss", epoch.train_loss);
  io.count("samples", epoch.samples);
  io.number_or_nan("samples_per_s", epoch.samples_per_s);
  return epoch;
}

MetricRecord read_line(const JsonFields& fields) {
  MetricRecord record;
  JsonReader io(fields);
  io("elapsed", record.elapsed);
  io.count("epoch", record.epoch);
  io.count("step", record.step);
  io("split", record.split);
  record.scores = read_scores(fields, "");
  for (const RateName& rate : kRates) record.*rate.value = fields.number_if(rate.name);
  return record;
}

struct SavedBest {
  BestEpoch epoch = {};
  std::string snapshot = {};
};

// What no list says: counts that contradict others.
void check_bounds(const JsonFields& fields, const RunState& state) {
  const std::int64_t epochs = std::ssize(state.epochs) + 1, samples = state.setup.data.samples;
  fields.count("epoch", 1, epochs);
  fields.count("samples", 0, samples);
  fields.count("epoch_samples", 0, samples);
  if (const auto best = fields.object_or_null("best")) best->count("epoch", 0, epochs);
}

}  // namespace

template <typename Object>
void list_fields(Object& object, DataIdentity& data) {
  object("name", data.name);
  object.count("samples", data.samples);
  object.count("classes", data.classes);
  object("fingerprint", data.fingerprint);
}

template <typename Object>
void list_fields(Object& object, PlateauState& plateau) {
  object.number("lr", plateau.lr);
  object("best", plateau.best);
  object.count("bad", plateau.bad);
  object.count("cooldown_left", plateau.cooldown_left);
}

template <typename Object>
void list_fields(Object& object, MeterReading& reading) {
  object.count("steps", reading.steps);
  object.count("samples", reading.samples);
  object.number_or_nan("loss_sum", reading.loss_sum);
  object("seconds", reading.seconds);
  object("data_seconds", reading.data_seconds);
  object("comm_seconds", reading.comm_seconds);
}

template <typename Object>
void list_fields(Object& object, SavedBest& best) {
  object.count("epoch", best.epoch.epoch);
  object.number("value", best.epoch.value);
  object("snapshot", best.snapshot);
}

template <typename Object>
void list_fields(Object& object, RunState& state) {
  RunSetup& setup = state.setup;
  object.count("step", state.step);
  object.count("epoch", state.position.epoch);
  object.count("samples", state.position.samples);
  object.count("epoch_samples", state.position.epoch_samples);
  object.count("schedule_step", state.schedule_step);
  object("seed", setup.seed);
  object("world_size", setup.world_size, 1);
  object("replicas", setup.replicas, 1);
  object("stages", setup.stages, 1);
  object("balance", setup.balance);
  object.texts("config", setup.configuration);
  object("data", setup.data);
  object("scaler", state.scaler);
  object("plateau", state.plateau);
  object.count("ema_updates", state.ema_updates);
  object.count("skipped_steps", state.skipped_steps);
  object("elapsed", state.seconds.elapsed);
  object("training_seconds", state.seconds.training);
  object("epoch_seconds", state.seconds.epoch);
  object("restarts", state.restarts);
  auto best =
      state.best ? std::optional(SavedBest{*state.best, state.best_snapshot}) : std::nullopt;
  object("best", best);
  if constexpr (Object::kReads)
    if (best) state.best = best->epoch, state.best_snapshot = best->snapshot;
  object.list("epochs", state.epochs, epoch_json, read_epoch);
  object("epoch_total", state.epoch_total);
  object("run", setup.run);
  object.count("batches_a_step", setup.batches_a_step);
  object.list_if_any(
      "last_lines", state.last_lines, [](const auto& line) { return json_of(line); }, read_line);
}

std::string to_json(const RunState& state) {
  Json object = {{"v", 1}};
  object.update(JsonWriter::json_of(state));
  // A folder's name may hold bytes that are not UTF-8.
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunState parse_run_state(
    std::string_view json, const std::string& file, std::optional<std::int64_t> step) {
  const nlohmann::json object = parse_strict_json(json, file, kStateLimits);
  const JsonFields fields(object, file);
  if (fields.count("v") != 1) fields.refuse("v", "be 1, the version that this program reads");
  auto state = JsonReader::read<RunState>(fields);
  check_bounds(fields, state);
  if (step && state.step != *step)
    fields.refuse("step", concat("be that of the manifest, ", *step));
  return state;
}

}  // namespace lockstep
