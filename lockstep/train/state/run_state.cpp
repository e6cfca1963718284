#include "lockstep/train/state/run_state.h"

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/snapshot/state_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostLayers = 1 << 20;
constexpr std::int64_t kMostCount = std::int64_t{1} << 53;  // that no training reaches

std::int64_t count_in(const JsonFields& fields, const char* key) {
  return fields.count(key, 0, kMostCount);
}

Json epochs_json(const std::vector<EpochSummary>& epochs) {
  Json list = Json::array();
  for (const EpochSummary& epoch : epochs) {
    Json& entry = list.emplace_back(json_of(epoch));
    entry["validated"] = epoch.validated;
  }
  return list;
}

Json plateau_json(const PlateauState& plateau) {
  return {{"lr", plateau.lr}, {"best", json_number(plateau.best)}, {"bad", plateau.bad},
      {"cooldown_left", plateau.cooldown_left}};
}

Json best_json_of(const RunState& state) {
  if (!state.best) return nullptr;
  return {{"epoch", state.best->epoch}, {"value", state.best->value},
      {"snapshot", state.best_snapshot}};
}

Json reading_json(const MeterReading& reading) {
  return {{"steps", reading.steps}, {"samples", reading.samples},
      {"loss_sum", json_number(reading.loss_sum)}, {"seconds", reading.seconds},
      {"data_seconds", reading.data_seconds}, {"comm_seconds", reading.comm_seconds}};
}

Json lines_json(const std::vector<MetricRecord>& lines) {
  Json list = Json::array();
  for (const MetricRecord& line : lines) list.push_back(json_of(line));
  return list;
}

Json configuration_json(const Configuration& configuration) {
  Json object = Json::object();
  for (const auto& [flag, value] : configuration) object[flag] = value;
  return object;
}

Json data_json(const DataIdentity& data) {
  return {{"name", data.name}, {"samples", data.samples}, {"classes", data.classes},
      {"fingerprint", data.fingerprint}};
}

std::vector<EpochSummary> read_epochs(const JsonFields& fields) {
  std::vector<EpochSummary> epochs;
  for (const JsonFields& epoch : fields.objects("epochs"))
    epochs.push_back({.epoch = count_in(epoch, "epoch"),
        .train_seconds = epoch.seconds("train_seconds"),
        .train_loss = epoch.number_or_nan("train_loss"),
        .val = read_scores(epoch, "val_"),
        .ema = read_scores(epoch, "ema_"),
        .validated = epoch.flag("validated"),
        .samples = count_in(epoch, "samples"),
        .samples_per_s = epoch.number_or_nan("samples_per_s"),
        .val_seconds = epoch.number_if("val_seconds"),  // older snapshots have none
        .val_samples = epoch.count_if("val_samples").value_or(0)});
  return epochs;
}

PlateauState read_plateau(const JsonFields& fields) {
  return {.lr = fields.number("lr"),
      .best = fields.number_if("best"),
      .bad = count_in(fields, "bad"),
      .cooldown_left = count_in(fields, "cooldown_left")};
}

MeterReading read_meter(const JsonFields& fields) {
  return {.steps = count_in(fields, "steps"),
      .samples = count_in(fields, "samples"),
      .loss_sum = fields.number_or_nan("loss_sum"),
      .seconds = fields.seconds("seconds"),
      .data_seconds = fields.seconds("data_seconds"),
      .comm_seconds = fields.seconds("comm_seconds")};
}

// Snapshots of whole worlds have none.
std::vector<MetricRecord> read_lines(const JsonFields& fields) {
  std::vector<MetricRecord> lines;
  if (!fields.items().contains("last_lines")) return lines;
  for (const JsonFields& line : fields.objects("last_lines")) {
    MetricRecord& record = lines.emplace_back();
    record.elapsed = line.seconds("elapsed");
    record.epoch = count_in(line, "epoch");
    record.step = count_in(line, "step");
    record.split = line.text("split");
    for (const ScoreName& score : kScores) record.scores.*score.value = line.number_if(score.name);
    for (const RateName& rate : kRates) record.*rate.value = line.number_if(rate.name);
  }
  return lines;
}

Configuration read_configuration(const JsonFields& fields) {
  Configuration configuration;
  for (const auto& [flag, value] : fields.text_map("config"))
    configuration.emplace_back(flag, value);
  return configuration;
}

DataIdentity read_data(const JsonFields& fields) {
  return {.name = fields.text("name"),
      .samples = count_in(fields, "samples"),
      .classes = count_in(fields, "classes"),
      .fingerprint = fields.text("fingerprint")};
}

std::vector<int> read_balance(const JsonFields& fields) {
  std::vector<int> balance;
  for (const double layers : fields.numbers("balance")) {
    const bool fits = layers >= 1 && layers <= kMostLayers && std::trunc(layers) == layers;
    if (!fits) fields.refuse("balance", "be a list of numbers of layers");
    balance.push_back(static_cast<int>(layers));
  }
  return balance;
}

RunSetup read_setup(const JsonFields& fields) {
  return {.run = fields.text_if("run").value_or(""),
      .seed = fields.count("seed"),
      .world_size = fields.small_count("world_size", 1),
      .replicas = fields.small_count("replicas", 1),
      .stages = fields.small_count("stages", 1),
      .balance = read_balance(fields),
      .batches_a_step = fields.count_if("batches_a_step").value_or(0),
      .configuration = read_configuration(fields),
      .data = read_data(fields.object("data"))};
}

}  // namespace

std::string to_json(const RunState& state) {
  const RunSetup& setup = state.setup;
  Json object = {{"v", 1}, {"step", state.step}, {"epoch", state.position.epoch},
      {"samples", state.position.samples}, {"epoch_samples", state.position.epoch_samples},
      {"schedule_step", state.schedule_step}, {"seed", setup.seed},
      {"world_size", setup.world_size}, {"replicas", setup.replicas}, {"stages", setup.stages},
      {"balance", setup.balance}, {"config", configuration_json(setup.configuration)},
      {"data", data_json(setup.data)}, {"scaler", json_of(state.scaler)},
      {"plateau", plateau_json(state.plateau)}, {"ema_updates", state.ema_updates},
      {"skipped_steps", state.skipped_steps}, {"elapsed", state.seconds.elapsed},
      {"training_seconds", state.seconds.training}, {"epoch_seconds", state.seconds.epoch},
      {"restarts", state.restarts}, {"best", best_json_of(state)},
      {"epochs", epochs_json(state.epochs)}, {"epoch_total", reading_json(state.epoch_total)}};
  if (!setup.run.empty()) object["run"] = setup.run;
  if (setup.batches_a_step > 0) object["batches_a_step"] = setup.batches_a_step;
  if (!state.last_lines.empty()) object["last_lines"] = lines_json(state.last_lines);
  // A folder's name may hold bytes that are not UTF-8.
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunState parse_run_state(
    std::string_view json, const std::string& file, std::optional<std::int64_t> step) {
  const nlohmann::json object = parse_strict_json(json, file, kStateLimits);
  const JsonFields fields(object, file);
  if (fields.count("v") != 1) fields.refuse("v", "be 1, the version that this program reads");
  const RunSetup setup = read_setup(fields);
  const std::vector<EpochSummary> epochs = read_epochs(fields);
  RunState state{.setup = setup,
      .step = count_in(fields, "step"),
      .position = {.epoch = fields.count("epoch", 1, std::ssize(epochs) + 1),
          .samples = fields.count("samples", 0, setup.data.samples),
          .epoch_samples = fields.count("epoch_samples", 0, setup.data.samples)},
      .schedule_step = count_in(fields, "schedule_step"),
      .scaler = read_scaler(fields),
      .plateau = read_plateau(fields.object("plateau")),
      .ema_updates = count_in(fields, "ema_updates"),
      .skipped_steps = count_in(fields, "skipped_steps"),
      .seconds = {.elapsed = fields.seconds("elapsed"),
          .training = fields.seconds("training_seconds"),
          .epoch = fields.seconds("epoch_seconds")},
      .restarts = fields.small_count("restarts"),
      .epochs = epochs,
      .epoch_total = read_meter(fields.object("epoch_total")),
      .last_lines = read_lines(fields)};
  if (step && state.step != *step)
    fields.refuse("step", concat("be that of the manifest, ", *step));
  if (const auto best = fields.object_or_null("best")) {
    state.best = BestEpoch{
        .epoch = best->count("epoch", 0, std::ssize(epochs) + 1), .value = best->number("value")};
    state.best_snapshot = best->text("snapshot");
  }
  return state;
}

}  // namespace lockstep
