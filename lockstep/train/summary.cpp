#include "lockstep/train/summary.h"

#include <cmath>
#include <cstdio>

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
      {"train_seconds", number(epoch.train_seconds)},
      {"train_loss", number(epoch.train_loss)},
      {"val_loss", number(epoch.val_loss)},
      {"val_accuracy", number(epoch.val_accuracy)},
      {"samples", epoch.samples},
      {"samples_per_s", number(epoch.samples_per_s)}};
}

std::string cell(const char* format, const std::optional<double>& value) {
  if (!value) return "-";
  char text[32];
  std::snprintf(text, sizeof text, format, *value);
  return text;
}

std::string table_row(const EpochSummary& epoch) {
  char text[160];
  std::snprintf(
      text,
      sizeof text,
      "%5lld  %8s  %10s  %10s  %9s  %13s\n",
      static_cast<long long>(epoch.epoch),
      cell("%.2f", epoch.train_seconds).c_str(),
      cell("%.0f", epoch.samples_per_s).c_str(),
      cell("%.4f", epoch.train_loss).c_str(),
      cell("%.4f", epoch.val_loss).c_str(),
      cell("%.4f", epoch.val_accuracy).c_str());
  return text;
}

}  // namespace

std::string to_json(const RunSummary& summary) {
  Json epochs = Json::array();
  for (const auto& epoch : summary.epochs) epochs.push_back(epoch_json(epoch));
  const Json object = {
      {"v", 1},
      {"model", summary.model},
      {"data", summary.data},
      {"parallel", summary.parallel},
      {"world_size", summary.world_size},
      {"stages", summary.stages},
      {"chunks", summary.chunks},
      {"batch_size", summary.batch_size},
      {"precision", summary.precision},
      {"epochs", epochs},
      {"test_accuracy", number(summary.test_accuracy)},
      {"steps", summary.steps},
      {"stopped_by", summary.stopped_by},
      {"parameters_hash", summary.parameters_hash},
      {"resumed_from", nullptr},
      {"restarts", 0},
      {"snapshot", nullptr},
      {"exit", summary.exit}};
  // A folder's name may hold bytes that are not UTF-8; they must not cost the summary.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string epoch_table(const RunSummary& summary) {
  std::string text = "epoch   seconds   samples/s  train loss  test loss  test accuracy\n";
  for (const auto& epoch : summary.epochs) text += table_row(epoch);
  return text;
}

}  // namespace lockstep
