#include "lockstep/snapshot/state_fields.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {

std::string new_run_id() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

std::string run_id_in(std::string_view json, const std::string& file) {
  const nlohmann::json object = parse_strict_json(json, file, kStateLimits);
  return JsonFields(object, file).text_if("run").value_or("");
}

std::string run_id_of_folder(const std::filesystem::path& output) {
  for (const auto& snapshot : snapshots_newest_first(output)) {
    const auto file = snapshot / kStateFile;
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    try {
      return run_id_in(text.str(), file);
    } catch (const DataError&) {  // it is cut short
    }
  }
  return "";
}

nlohmann::ordered_json json_of(const std::optional<nn::GradScalerState>& scaler) {
  if (!scaler) return nullptr;
  return {{"scale", scaler->scale}, {"growth_factor", scaler->growth_factor},
      {"backoff_factor", scaler->backoff_factor}, {"growth_interval", scaler->growth_interval},
      {"growth_tracker", scaler->growth_tracker}};
}

std::optional<nn::GradScalerState> read_scaler(const JsonFields& fields) {
  const auto scaler = fields.object_or_null("scaler");
  if (!scaler) return std::nullopt;
  return nn::GradScalerState{.scale = scaler->number("scale"),
      .growth_factor = scaler->number("growth_factor"),
      .backoff_factor = scaler->number("backoff_factor"),
      .growth_interval = scaler->count("growth_interval"),
      .growth_tracker = scaler->count("growth_tracker")};
}

}  // namespace lockstep
