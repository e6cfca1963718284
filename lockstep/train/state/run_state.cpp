#include "lockstep/train/state/run_state.h"

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/snapshot/state_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kDataFields = [](auto& io, auto& data) {
  io.text("name", data.name);
  io.count("samples", data.samples);
  io.count("classes", data.classes);
  io.text("fingerprint", data.fingerprint);
};

constexpr auto kPlateauFields = [](auto& io, auto& plateau) {
  io.number("lr", plateau.lr);
  io.nullable("best", plateau.best);
  io.count("bad", plateau.bad);
  io.count("cooldown_left", plateau.cooldown_left);
};

constexpr auto kReadingFields = [](auto& io, auto& reading) {
  io.count("steps", reading.steps);
  io.count("samples", reading.samples);
  io.nullable("loss_sum", reading.loss_sum);
  io.seconds("seconds", reading.seconds);
  io.seconds("data_seconds", reading.data_seconds);
  io.seconds("comm_seconds", reading.comm_seconds);
};

Json epoch_json(const EpochSummary& epoch) {
  Json entry = json_of(epoch);
  entry["validated"] = epoch.validated;
  return entry;
}

EpochSummary read_epoch(const JsonFields& fields) {
  EpochSummary epoch{.val = read_scores(fields, "val_"),
      .ema = read_scores(fields, "ema_"),
      .validated = fields.flag("validated"),
      .val_seconds = fields.number_if("val_seconds"),  // only after an evaluation
      .val_samples = fields.count_if("val_samples").value_or(0)};
  FieldReader io(fields);
  io.count("epoch", epoch.epoch);
  io.seconds("train_seconds", epoch.train_seconds);
  io.nullable("train_loss", epoch.train_loss);
  io.count("samples", epoch.samples);
  io.nullable("samples_per_s", epoch.samples_per_s);
  return epoch;
}

MetricRecord read_line(const JsonFields& fields) {
  MetricRecord record;
  FieldReader io(fields);
  io.seconds("elapsed", record.elapsed);
  io.count("epoch", record.epoch);
  io.count("step", record.step);
  io.text("split", record.split);
  record.scores = read_scores(fields, "");
  for (const RateName& rate : kRates) record.*rate.value = fields.number_if(rate.name);
  return record;
}

constexpr auto kStateFields = [](auto& io, auto& state) {
  auto& setup = state.setup;
  io.count("step", state.step);
  io.count("epoch", state.position.epoch);
  io.count("samples", state.position.samples);
  io.count("epoch_samples", state.position.epoch_samples);
  io.count("schedule_step", state.schedule_step);
  io.whole("seed", setup.seed);
  io.small("world_size", setup.world_size, 1);
  io.small("replicas", setup.replicas, 1);
  io.small("stages", setup.stages, 1);
  io.sizes("balance", setup.balance);
  io.texts("config", setup.configuration);
  io.fields("data", setup.data, kDataFields);
  io.optional("scaler", state.scaler, kScalerFields);
  io.fields("plateau", state.plateau, kPlateauFields);
  io.count("ema_updates", state.ema_updates);
  io.count("skipped_steps", state.skipped_steps);
  io.seconds("elapsed", state.seconds.elapsed);
  io.seconds("training_seconds", state.seconds.training);
  io.seconds("epoch_seconds", state.seconds.epoch);
  io.small("restarts", state.restarts);
  io.optional("best", state.best, [&](auto& best_io, auto& best) {
    best_io.count("epoch", best.epoch);
    best_io.number("value", best.value);
    best_io.text("snapshot", state.best_snapshot);
  });
  io.list("epochs", state.epochs, epoch_json, read_epoch);
  io.fields("epoch_total", state.epoch_total, kReadingFields);
  io.text("run", setup.run);
  io.count("batches_a_step", setup.batches_a_step);
  io.list_if_any(
      "last_lines", state.last_lines, [](const auto& line) { return json_of(line); }, read_line);
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

std::string to_json(const RunState& state) {
  Json object = {{"v", 1}};
  FieldWriter io;
  kStateFields(io, state);
  object.update(io.object());
  // A folder's name may hold bytes that are not UTF-8.
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunState parse_run_state(
    std::string_view json, const std::string& file, std::optional<std::int64_t> step) {
  const nlohmann::json object = parse_strict_json(json, file, kStateLimits);
  const JsonFields fields(object, file);
  if (fields.count("v") != 1) fields.refuse("v", "be 1, the version that this program reads");
  RunState state;
  FieldReader io(fields);
  kStateFields(io, state);
  check_bounds(fields, state);
  if (step && state.step != *step)
    fields.refuse("step", concat("be that of the manifest, ", *step));
  return state;
}

}  // namespace lockstep
