#include "lockstep/train/run_state.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json epoch_json(const EpochSummary& epoch) {
  return {
      {"epoch", epoch.epoch},
      {"train_seconds", epoch.train_seconds},
      {"train_loss", number(epoch.train_loss)},
      {"val_loss", number(epoch.val_loss)},
      {"val_accuracy", number(epoch.val_accuracy)},
      {"val_accuracy5", number(epoch.val_accuracy5)},
      {"ema_loss", number(epoch.ema_loss)},
      {"ema_accuracy", number(epoch.ema_accuracy)},
      {"ema_accuracy5", number(epoch.ema_accuracy5)},
      {"validated", epoch.validated},
      {"samples", epoch.samples},
      {"samples_per_s", number(epoch.samples_per_s)}};
}

Json epochs_json(const std::vector<EpochSummary>& epochs) {
  Json list = Json::array();
  for (const EpochSummary& epoch : epochs) list.push_back(epoch_json(epoch));
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
      {"best", number(plateau.best)},
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
      {"loss_sum", number(reading.loss_sum)},
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
      {"optimizer", Json::parse(state.optimizer)},
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
