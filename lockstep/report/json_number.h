#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep::bench {

/// Sets a number of a report's object; null if there is none. JSON has no NaN and no infinity:
/// those are null too, and named in `nonfinite`.
inline void put_number(
    nlohmann::ordered_json& object, const std::string& name, const std::optional<double>& value) {
  object[name] = nullptr;
  if (!value) return;
  if (std::isfinite(*value)) {
    object[name] = *value;
  } else {
    object["nonfinite"].push_back(name);
  }
}

}  // namespace lockstep::bench
