#include "lockstep/train/state/run_state.h"

#include <nlohmann/json.hpp>

#include "lockstep/train/record/summary_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json epochs_json(const std::vector<EpochSummary>& epochs) {
  Json list = Json::array();
  for (const EpochSummary& epoch : epochs) {
    Json& entry = list.emplace_back(json_of(epoch));
    entry["validated"] = epoch.validated;
  }
  return list;
}

Json scaler_json(const std::optional<ScalerRecord>& scaler) {
  if (!scaler) return nullptr;
  return {
      {"scale", scaler->scale},
      {"growth_factor", scaler->growth_factor},
      {"backoff_factor", scaler->backoff_factor},
      {"growth_interval", scaler->growth_interval},
      {"growth_tracker", scaler->growth_tracker}};
}

Json plateau_json(const PlateauState& plateau) {
  return {
      {"lr", plateau.lr},
      {"best", json_number(plateau.best)},
      {"bad", plateau.bad},
      {"cooldown_left", plateau.cooldown_left}};
}

Json best_json(const RunState& state) {
  if (!state.best) return nullptr;
  return {
      {"epoch", state.best->epoch},
      {"value", state.best->value},
      {"snapshot", state.best_snapshot}};
}

Json reading_json(const MeterReading& reading) {
  return {
      {"steps", reading.steps},
      {"samples", reading.samples},
      {"loss_sum", json_number(reading.loss_sum)},
      {"seconds", reading.seconds},
      {"data_seconds", reading.data_seconds},
      {"comm_seconds", reading.comm_seconds}};
}

Json configuration_json(const Configuration& configuration) {
  Json object = Json::object();
  for (const auto& [flag, value] : configuration) object[flag] = value;
  return object;
}

Json data_json(const DataIdentity& data) {
  return {
      {"name", data.name},
      {"samples", data.samples},
      {"classes", data.classes},
      {"fingerprint", data.fingerprint}};
}

}  // namespace

std::string to_json(const RunState& state) {
  const Json object = {
      {"v", 1},
      {"step", state.step},
      {"epoch", state.position.epoch},
      {"samples", state.position.samples},
      {"epoch_samples", state.position.epoch_samples},
      {"schedule_step", state.schedule_step},
      {"seed", state.seed},
      {"world_size", state.world_size},
      {"replicas", state.replicas},
      {"stages", state.stages},
      {"balance", state.balance},
      {"config", configuration_json(state.configuration)},
      {"data", data_json(state.data)},
      {"scaler", scaler_json(state.scaler)},
      {"plateau", plateau_json(state.plateau)},
      {"ema_updates", state.ema_updates},
      {"skipped_steps", state.skipped_steps},
      {"elapsed", state.elapsed},
      {"training_seconds", state.training_seconds},
      {"epoch_seconds", state.epoch_seconds},
      {"restarts", state.restarts},
      {"best", best_json(state)},
      {"epochs", epochs_json(state.epochs)},
      {"epoch_total", reading_json(state.epoch_total)}};
  // A folder's name may hold bytes that are not UTF-8.
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
