#include "lockstep/train/record/summary_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;

Json json_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json json_of(const EpochSummary& epoch) {
  return {
      {"epoch", epoch.epoch},
      {"train_seconds", json_number(epoch.train_seconds)},
      {"train_loss", json_number(epoch.train_loss)},
      {"val_loss", json_number(epoch.val_loss)},
      {"val_accuracy", json_number(epoch.val_accuracy)},
      {"val_accuracy5", json_number(epoch.val_accuracy5)},
      {"ema_loss", json_number(epoch.ema_loss)},
      {"ema_accuracy", json_number(epoch.ema_accuracy)},
      {"ema_accuracy5", json_number(epoch.ema_accuracy5)},
      {"samples", epoch.samples},
      {"samples_per_s", json_number(epoch.samples_per_s)}};
}

}  // namespace lockstep
