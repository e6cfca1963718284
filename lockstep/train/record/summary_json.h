#pragma once

#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/train/record/summary.h"

namespace lockstep {

/// Gives a number as JSON takes it: `null` for one that is absent, NaN or infinite.
nlohmann::ordered_json json_number(const std::optional<double>& value);

/// Gives what summary.json and state.json have of an epoch.
nlohmann::ordered_json json_of(const EpochSummary& epoch);

}  // namespace lockstep
